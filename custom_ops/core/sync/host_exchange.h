// HostExchange: how the leaders of the hosts make one update of what their hosts merged.
//
//     Merge       the messages of this host's ranks, as one message of the host
//     (send)      Route::kAllgather: to all other leaders
//                 Route::kOwnerReduce: each key's share to its owner, one of the leaders, who
//                 merges the shares that he gets (MergeOwned) and sends the result to all others
//     Stage       plan the update and make room for it
//     (vote)      only where some host might not have room
//     Commit      apply it, once per host
//
// Sending is the caller's (Horovod). Both routes, and an update of all ranks' own messages, give
// the same bits unless messages are rounded to bfloat16.
//
// What goes wrong on one host must stop all. A leader that cannot bring gradients sends the reason
// in their place. Whether there is room is known to all before anybody has changed anything: each
// message says how much its sender has without growing anything; within the least of these nobody
// can fail, beyond it the leaders vote.
//
// The leader's; not thread-safe.
#ifndef TFHYBRID_CORE_SYNC_HOST_EXCHANGE_H_
#define TFHYBRID_CORE_SYNC_HOST_EXCHANGE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/store/table_writer.h"
#include "core/sync/host_update.h"
#include "core/sync/message_merger.h"
#include "core/util/parallel.h"
#include "core/util/span.h"

namespace tfhybrid {

enum class Route : int64_t { kAllgather = 0, kOwnerReduce = 1 };

// Of the last update; times in nanoseconds.
struct ExchangeStats {
  int64_t route = 0;
  int64_t posted_keys = 0;    // of this host's ranks
  int64_t merged_keys = 0;    // of this host
  int64_t received_keys = 0;  // of all hosts, or of all owners
  int64_t updated_keys = 0;   // distinct
  int64_t merge_ns = 0;       // of the ranks' messages
  int64_t exchange_ns = 0;    // from there to Stage(): sending, and waiting for the others
  int64_t stage_ns = 0;
};

class HostExchange {
 public:
  // Of an update with Sync::kExchanged, which outlives it.
  explicit HostExchange(HostUpdate* update)
      : update_(update),
        form_(update->settings().form | kOfHost),
        host_(update->settings().host),
        hosts_(static_cast<int64_t>(update->settings().hosts.size())) {}

  // The route of the update under way: what host 0 announced with the one before.
  Route route() const { return route_; }

  // Waits for the messages of this host's ranks and merges them. `next` counts on host 0.
  void Merge(Route next, const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  // Merges the shares that this owner was sent, host by host.
  void MergeOwned(Span<const int64_t> words, const ParallelFor& parallel_for);

  // What was merged last: one message, or one per owner, end to end.
  std::vector<int64_t> Splits() const;
  void Fill(Span<int64_t> words, const ParallelFor& parallel_for) const;

  struct Staged {
    bool vote;              // whether it depends on the other hosts' complaints too
    std::string complaint;  // why this host cannot apply the update; empty if it can
  };
  Staged Stage(Span<const int64_t> words, const std::vector<TableWriter*>& tables,
               const ParallelFor& parallel_for);
  const ExchangeStats& stats() const { return stats_; }

 private:
  using Clock = std::chrono::steady_clock;

  void Fail(const std::string& why);
  Status TryMerge(Span<const int64_t> words, const ParallelFor& parallel_for);
  Status TryStage(Span<const int64_t> words, const std::vector<GradientMessage>& messages,
                  const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for,
                  bool* vote);
  void WriteHeader(const MessageBuilder& message, int64_t owner) const;

  HostUpdate* const update_;
  const int64_t form_, host_, hosts_;
  Route route_ = Route::kAllgather;
  Route next_ = Route::kAllgather;
  // What was merged last.
  MessageMerger merger_;
  int64_t shares_ = 1;            // messages that it is
  std::vector<int64_t> widened_;  // what an owner merges, where it came as bfloat16
  int64_t samples_ = 0;
  bool skip_ = false;
  int64_t event_time_ = kNoTime;
  std::vector<int64_t> failure_;  // a message, instead of what was merged
  // Of this host, when it merged.
  int64_t mailbox_room_ = 0;
  std::vector<int64_t> table_room_;
  ExchangeStats stats_;
  Clock::time_point merged_at_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SYNC_HOST_EXCHANGE_H_
