// ShardedStep: a step of an update whose tables are sharded, as the leader of each host does it.
//
//     merge     what the ranks of this host posted, into one message per owner
//     UPDATE    each message to its owner: every leader sends one to every other, even if empty
//     stage     what all hosts sent of this owner's keys: everything that may fail
//     STAGED    to host 0: why it cannot be, or nothing; and the squares that clipping wants
//     COMMIT    from host 0: what all owners said together, and the squares of all
//     commit    apply it, or tell all who wait why it will not come
//
// An embedding node has no ranks: it sends no message, and takes the numbers of the step from
// the messages that it gets. So it waits for UPDATE, and for no call in its own process.
//
// So COMMIT goes out only when all have staged, and a process that dies between leaves the tables
// of all owners before the step, or each with all it needs to apply it: what an owner has staged
// lies in shared memory (docs/design/0018-sharded-tables.md).
//
// The thread of an update waits here for other hosts; the applying thread does not.
#ifndef TFHYBRID_CORE_ENGINE_SHARDED_STEP_H_
#define TFHYBRID_CORE_ENGINE_SHARDED_STEP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/compute/square_sum.h"
#include "core/engine/meetings.h"
#include "core/engine/owner_links.h"
#include "core/exchange/host_exchange.h"
#include "core/exchange/update_inbox.h"
#include "core/update/host_update.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class ShardedStep {
 public:
  // Operations of a step on the tables. All run on the applying thread.
  struct Tables {
    std::function<Status(WordBuffer* words, std::vector<int64_t>* splits)> merge;
    // `messages`: of all hosts with ranks.
    std::function<Status(const std::vector<Span<const int64_t>>& messages,
                         HostExchange::Staged* staged)>
        stage;
    std::function<std::vector<SquareSum>()> squares;  // of what was staged, by table
  };

  // The step `step` of an update with `settings`. Its waits for other hosts are recorded in
  // `meetings`.
  ShardedStep(const UpdateSettings& settings, UpdateStep step, Tables tables, OwnerLinks* links,
              UpdateInbox* inbox, Meetings* meetings, std::function<Status()> check_alive)
      : settings_(settings),
        step_(step),
        tables_(std::move(tables)),
        sources_(static_cast<int64_t>(settings.hosts.size())),
        parties_(settings.Parties()),
        links_(links),
        inbox_(inbox),
        meetings_(meetings),
        check_alive_(std::move(check_alive)) {}

  // The decision of all hosts: what to commit, or why not.
  struct Agreed {
    StepNumbers numbers;
    std::string complaint;
  };
  // Everything up to the commit. An error if another host has ended.
  Result<Agreed> Run(const StepNumbers& numbers);
  // The same on an embedding node.
  Result<Agreed> Serve();

 private:
  // An owner's message after staging.
  struct Said {
    std::string complaint;
    std::vector<SquareSum> squares;  // by table, where clipping wants them
  };

  Status SendUpdates(const StepNumbers& numbers, const WordBuffer& merged,
                     const std::vector<int64_t>& splits);
  // The messages of all hosts with ranks, empty for this host.
  Result<std::vector<UpdateInbox::Taken>> TakeUpdates();
  // Everything after the exchange of messages.
  Result<Agreed> Settle(const StepNumbers& numbers, Span<const int64_t> own,
                        const std::vector<UpdateInbox::Taken>& taken);
  // Stages the messages, or says how their numbers differ.
  Status Stage(const StepNumbers& numbers, Span<const int64_t> own,
               const std::vector<UpdateInbox::Taken>& taken, HostExchange::Staged* staged) const;
  Result<Said> TakeStaged(int64_t host);
  Result<Agreed> Decide(const StepNumbers& numbers, Said said);
  Result<Agreed> TakeDecision(const StepNumbers& numbers);
  Status Send(int64_t host, FrameKind kind, const std::vector<Span<const int64_t>>& pieces);
  Result<UpdateInbox::Taken> Take(FrameKind kind, int64_t host);
  bool IsSharded(size_t table) const { return settings_.allocations[table] != nullptr; }

  const UpdateSettings& settings_;
  const UpdateStep step_;
  const Tables tables_;
  const int64_t sources_;  // hosts with ranks
  const int64_t parties_;  // and embedding nodes behind them
  OwnerLinks* const links_;
  UpdateInbox* const inbox_;
  Meetings* const meetings_;
  const std::function<Status()> check_alive_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_SHARDED_STEP_H_
