// SplitBatches: batches that data nodes split, so that trainers name keys by key handles
// (core/placement/key_handle.h).
//
// On an embedding node: the keys of these batches, and the rows that it sends unasked. On a
// trainer: the rows that it receives, and which batches it has looked up.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_SPLIT_BATCHES_H_
#define TFHYBRID_CORE_ENGINE_SPLIT_BATCHES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/engine/fetched_rows.h"
#include "core/engine/row_sender.h"
#include "core/util/mutex.h"

namespace tfhybrid {

class SplitBatches {
 public:
  // The tables outlive this object.
  explicit SplitBatches(const PlacedTables* tables)
      : tables_(tables), keys_(tables->topology().host), sender_(tables, &keys_) {}

  // From now on lookups of features and updates of this rank get key handles instead of keys.
  void UseKeyHandles() { uses_key_handles_ = true; }
  bool uses_key_handles() const { return uses_key_handles_; }
  // Ok if all keys are key handles of owners.
  Status Check(const std::vector<KeyGradients>& batch) const;

  // A lookup has read these rows.
  void CountLookup(const FetchedRows& fetched);
  // Tickets of batches that features were looked up of, and that were not taken yet; at most
  // `max_count` of them.
  std::vector<int64_t> TakeLookedUp(int64_t max_count);
  // What was read of batches whose rows may lack updates, and not taken yet, oldest first; at
  // most `max_count` of them.
  std::vector<RowRead> TakeReads(int64_t max_count);

  // An embedding node's: its keys of batches that trainers have.
  BatchKeys& keys() { return keys_; }
  // An embedding node's: rows that it sends trainers unasked.
  RowSender& sender() { return sender_; }
  // A trainer's: rows that owners send it unasked.
  ReceivedRows& received() { return received_; }
  const ReceivedRows& received() const { return received_; }
  // Ends the connections on which rows are sent unasked, and their threads.
  void Close() {
    received_.Close();
    sender_.Close();
  }

 private:
  const PlacedTables* const tables_;
  BatchKeys keys_;
  RowSender sender_;
  ReceivedRows received_;
  std::atomic<bool> uses_key_handles_{false};
  Mutex mutex_;
  std::set<int64_t> looked_up_ TFHYBRID_GUARDED_BY(mutex_);  // tickets
  std::deque<RowRead> reads_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_SPLIT_BATCHES_H_
