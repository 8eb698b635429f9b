// HostExchange: how the leaders of the hosts make one update of what their hosts merged.
//
//     Merge       the messages of this host's ranks, as one message of the host
//     (send)      Exchange::kLeaders: to all other leaders
//                 Exchange::kOwner: to each owner, one of the leaders, a message with its keys; it
//                 merges those that it gets (MergeOwned) and sends the result to all others
//                 sharded tables: to each owner a message with its keys, which it alone stages
//     Stage       plan the update and make room for it
//     (vote)      only where some host might not have room; always where tables are sharded
//     Commit      apply it, once per host
//
// Sending is the caller's: Horovod's, or the row service's where tables are sharded. All ways, and
// an update of all ranks' own messages, give the same bits unless messages are rounded to bfloat16.
//
// What goes wrong on one host must stop all. A leader that cannot bring gradients sends the reason
// in their place. Whether there is room is known to all before anybody has changed anything: each
// message says how much its sender has without growing anything; within the least of these nobody
// can fail, beyond it the leaders vote.
//
// The leader's; not thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_HOST_EXCHANGE_H_
#define TFHYBRID_CORE_EXCHANGE_HOST_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/exchange/batch_keys.h"
#include "core/exchange/message_merger.h"
#include "core/exchange/resolved_messages.h"
#include "core/store/table_writer.h"
#include "core/update/host_update.h"
#include "core/util/parallel.h"
#include "core/util/phase_times.h"
#include "core/util/span.h"

namespace tfhybrid {

class HostExchange {
 public:
  // Exchanges an update with settings().BetweenLeaders(). The update outlives this object.
  explicit HostExchange(HostUpdate* update)
      : update_(update),
        form_(update->settings().form | kOfHost),
        host_(update->settings().host),
        hosts_(static_cast<int64_t>(update->settings().hosts.size())) {}

  // Waits for the messages of this host's ranks, and merges them.
  void Merge(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  // Merges the messages that this owner received, host by host.
  void MergeOwned(Span<const int64_t> words, const ParallelFor& parallel_for);

  // The result of the last merge: one message, or one per owner, concatenated.
  std::vector<int64_t> Splits() const;
  void Fill(Span<int64_t> words, const ParallelFor& parallel_for) const;

  struct Staged {
    bool vote;              // whether it depends on the other hosts' complaints too
    std::string complaint;  // why this host cannot apply the update; empty if it can
  };
  // The messages of all hosts, end to end.
  Staged Stage(Span<const int64_t> words, const std::vector<TableWriter*>& tables,
               const ParallelFor& parallel_for);
  // The same where they lie apart. `held`: what their key handles stand for; null where they have
  // keys.
  Staged Stage(const Result<std::vector<GradientMessage>>& messages, const BatchKeys* held,
               const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);

 private:
  void Fail(const std::string& why);
  Status TryMerge(Span<const int64_t> words, const ParallelFor& parallel_for);
  Status TryStage(const std::vector<GradientMessage>& messages, const BatchKeys* held,
                  const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for,
                  bool* vote);
  // Posts what the update applies, with keys.
  Status PostAll(const std::vector<GradientMessage>& messages, const BatchKeys* held,
                 const ParallelFor& parallel_for);
  void WriteHeader(const MessageBuilder& message, int64_t receiver) const;

  HostUpdate* const update_;
  const int64_t form_, host_, hosts_;
  // What was merged last.
  MessageMerger merger_;
  int64_t receivers_ = 1;         // of which each gets a message
  std::vector<int64_t> widened_;  // what an owner merges, where it came as bfloat16
  ResolvedMessages resolved_;
  Contribution joint_;
  std::vector<int64_t> failure_;  // a message, instead of what was merged
  // The state of this host when it merged.
  int64_t mailbox_room_ = 0;
  std::vector<int64_t> table_room_;
  PhaseClock::time_point merged_at_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_HOST_EXCHANGE_H_
