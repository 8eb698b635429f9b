// MessageMerger: several messages as one, or as one per owner where keys are shared out to owners.
//
// Sums are formed in the order of TableUpdate's: by local rank within a host, then by host. So a
// leader that merges its ranks, and an owner that merges the leaders' shares, do parts of the same
// sum, and the bits are those of one merge of all ranks. Keys come out in an order that follows
// from the messages alone.
//
// Reusable scratch; not thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_
#define TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_

#include <cstdint>
#include <vector>

#include "core/compute/merged_keys.h"
#include "core/update/gradient_message.h"
#include "core/util/parallel.h"

namespace tfhybrid {

class MessageMerger {
 public:
  // `messages` stay where they are until Fill() is done. Message i is of host hosts[i]; messages of
  // a host follow each other.
  void Merge(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
             const std::vector<int64_t>& hosts, int64_t owners, const ParallelFor& parallel_for);

  // Keys by table of one owner's share.
  const std::vector<int64_t>& counts(int64_t owner) const {
    return counts_[static_cast<size_t>(owner)];
  }
  // Writes keys, ranks and sums of all shares; one message per owner, of a host's form.
  void Fill(const MessageSchema& schema, const std::vector<MessageBuilder>& shares,
            const ParallelFor& parallel_for) const;

 private:
  // Some keys of a table, as one thread merges them.
  struct Unit {
    size_t table;
    int64_t part, parts;
    MergedKeys merged;
    std::vector<uint16_t> owners;  // of each key; empty where there is but one
    std::vector<int64_t> counts;   // keys by owner
    std::vector<int64_t> starts;   // in the shares, by owner
  };

  void Plan(const MessageSchema& schema, const std::vector<GradientMessage>& messages);
  static void ShareOut(Unit* unit, int64_t owners);
  void Count(size_t tables, int64_t owners);
  static void FillUnit(const Unit& unit, int64_t dim, const std::vector<MessageBuilder>& shares);

  std::vector<Unit> units_;
  std::vector<std::vector<int64_t>> counts_;  // by owner and table
  int64_t keys_ = 0;                          // in all messages
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_
