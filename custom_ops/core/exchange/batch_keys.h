// BatchKeys: what an owner holds of batches that data nodes have split: its keys of each table, by
// the ticket of the batch. So trainers can use key handles instead of keys
// (core/placement/key_handle.h).
//
// A batch stays until it is dropped. It may come again: with the same content it is the one that is
// here, with another it is refused. Thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_BATCH_KEYS_H_
#define TFHYBRID_CORE_EXCHANGE_BATCH_KEYS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class BatchKeys {
 public:
  struct Batch {
    std::string id;      // run, epoch, data node and number
    std::string digest;  // of the whole batch
    int64_t rank;        // that trains it
    bool trains;         // false: for evaluation, an update of it is refused
    uint64_t staleness;  // updates that its rows may lack
    std::map<std::string, std::vector<int64_t>> keys;  // by table

    int64_t Bytes() const;
  };

  explicit BatchKeys(int64_t owner) : owner_(owner) {}

  // kAlreadyExists where the ticket is another batch's, or the batch had another digest.
  Status Put(int64_t ticket, Batch batch);
  // Forgets a batch that no lookup and no update will name any longer, if it is here.
  void Drop(int64_t ticket);
  struct HeldBatches {
    int64_t batches, bytes;
  };
  HeldBatches held() const;

  // All batches that are here as words, with which PutAll() puts them into another owner of the
  // same rows. kDataLoss if the words are damaged; the batches in front of the damage are then
  // here.
  std::vector<int64_t> Words() const;
  Status PutAll(Span<const int64_t> words);

  // The batch of a ticket, or null.
  std::shared_ptr<const Batch> Of(int64_t ticket) const;
  // Likewise, or kNotFound.
  Result<std::shared_ptr<const Batch>> Get(int64_t ticket) const;

  // Writes the keys of a table's key handles to `keys`, which has room for all. Returns how many
  // updates their rows may lack.
  Result<uint64_t> Find(const std::string& table, Span<const int64_t> handles, int64_t* keys) const;

 private:
  const int64_t owner_;
  mutable Mutex mutex_;
  // By ticket.
  std::map<int64_t, std::shared_ptr<const Batch>> batches_ TFHYBRID_GUARDED_BY(mutex_);
  int64_t bytes_ TFHYBRID_GUARDED_BY(mutex_) = 0;  // of their keys
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_BATCH_KEYS_H_
