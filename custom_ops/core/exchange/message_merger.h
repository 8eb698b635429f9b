// MessageMerger: merges several messages into one, or into one per owner. An owner's message has
// the owner's keys of each table with an allocation, and all keys of other tables.
//
// Sums are formed in the same order as in TableUpdate: by local rank within a host, then by host.
// So a leader that merges its ranks, and an owner that merges the leaders' messages, compute parts
// of the same sum, and the bits equal those of one merge of all ranks. The order of keys depends
// only on the messages.
//
// Reusable scratch; not thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_
#define TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/compute/merged_keys.h"
#include "core/placement/allocation.h"
#include "core/update/gradient_message.h"
#include "core/update/update_settings.h"
#include "core/util/parallel.h"

namespace tfhybrid {

class MessageMerger {
 public:
  // `messages` stay where they are until Fill() is done. Message i is of host hosts[i]; messages of
  // a host follow each other. The result is one message for each of `receivers`,
  // the owners; with one receiver, allocations do not matter.
  // Where keys are key handles, they say themselves who owns them.
  void Merge(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
             const std::vector<int64_t>& hosts, const Allocations& allocations, int64_t receivers,
             const ParallelFor& parallel_for);

  // Number of keys of each table in a receiver's message.
  const std::vector<int64_t>& counts(int64_t receiver) const {
    return counts_[static_cast<size_t>(receiver)];
  }
  // Writes keys, ranks and sums of the message of each receiver. REQUIRES: the messages have a
  // host's form.
  void Fill(const MessageSchema& schema, const std::vector<MessageBuilder>& builders,
            const ParallelFor& parallel_for) const;

 private:
  struct OwnedUnit : MergeUnit {
    std::vector<uint16_t> owners;  // of each key; empty where every receiver gets all keys
    std::vector<int64_t> counts;   // keys by receiver
    std::vector<int64_t> starts;   // in the receivers' messages
  };

  // Key handles of two ranks differ: each rank has tickets of its own. So nothing is merged here.
  int64_t MergeDistinct(const std::vector<std::vector<RankGradients>>& tables,
                        const std::vector<int64_t>& dims,
                        const std::function<void(OwnedUnit*)>& split,
                        const ParallelFor& parallel_for);
  static void SplitByOwner(OwnedUnit* unit, const Allocation* allocation, int64_t receivers,
                           bool key_handles);
  void Count(size_t tables, int64_t receivers);
  static void FillUnit(const OwnedUnit& unit, int64_t dim,
                       const std::vector<MessageBuilder>& builders);

  std::vector<OwnedUnit> units_;
  KeyParts parts_;
  std::vector<std::vector<int64_t>> counts_;  // by receiver and table
  int64_t keys_ = 0;                          // in all messages
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_MESSAGE_MERGER_H_
