// Engine: one store, the updates of its tables, and the threads on which they are applied and
// waited for.
//
//   version thread    where lookups wait for a table's version. First in first out cannot deadlock:
//                     what a wait needs was posted before by every rank that waits, and is done by
//                     the leader's applying thread
//   applying thread   where the leader collects and applies updates (core/engine/applying_thread.h)
//   fetching thread   where lookups wait for rows of sharded tables, which other hosts own
//   summing thread    where dense gradients wait for those of this host's other ranks
//   passes thread     where the leader takes what ranks announce (core/passes/pass_keeper.h)
//   threads()         all processors that this process may use. The leader applies while the other
//                     ranks have nothing to do but wait, so it uses their processors too
//
// An update with sharded tables has a thread of its own on the leader, where it waits for other
// hosts: two of them may come in another order there. The row service has one per connection, and
// what keeps the passes of hosts fresh one per host.
//
// No thread of a caller ever waits for another process, and no rank waits for an update before its
// next lookup needs it.
//
// Its members have interfaces of their own: tables(), batches(), passes(), applying() and owners().
// They know each other, and not the engine.
//
// Thread-safe. Held by shared_ptr; not to be used in forked children, which have none of its
// threads.
#ifndef TFHYBRID_CORE_ENGINE_ENGINE_H_
#define TFHYBRID_CORE_ENGINE_ENGINE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/applying_thread.h"
#include "core/engine/host_passes.h"
#include "core/engine/meetings.h"
#include "core/engine/owner_exchange.h"
#include "core/engine/placed_tables.h"
#include "core/engine/serial_thread.h"
#include "core/engine/split_batches.h"
#include "core/engine/worker_threads.h"
#include "core/exchange/host_sum.h"
#include "core/util/mutex.h"

namespace tfhybrid {

// Updates that a table must have.
struct RequiredVersion {
  std::shared_ptr<OpenTable> table;
  uint64_t version;
};

class Engine {
 public:
  // The leader creates its host's store, the others attach it. `reclaimed` as of Store::Create().
  static Result<std::shared_ptr<Engine>> Open(const StoreConfig& config, const Topology& topology,
                                              std::vector<std::string>* reclaimed);
  // On the store of a dead job, as its leader (core/update/recovery.h).
  static Result<std::shared_ptr<Engine>> Recover(const StoreConfig& config,
                                                 const Topology& topology);
  ~Engine() { Close(); }
  // Fails all waits, runs all submitted work, and ends the threads. Must not be called on one of
  // them.
  void Close();

  Store& store() { return *store_; }
  const ParallelFor& threads() const { return workers_.parallel_for(); }
  Meetings& meetings() { return meetings_; }
  PlacedTables& tables() { return tables_; }
  SplitBatches& batches() { return batches_; }
  HostPasses& passes() { return passes_; }
  ApplyingThread& applying() { return applying_; }
  OwnerExchange& owners() { return owners_; }
  // Ok in the process that opened it.
  Status CheckProcess() const;

  // The number of the update of that name and those open tables, each named once; it is opened
  // when first asked for, later with the same choices only. `steps`: that the hosts of the job have
  // done of it, if this process gets the rows of another one.
  Result<int64_t> OpenUpdate(const std::string& name, const std::vector<std::string>& tables,
                             const UpdateChoices& choices, int64_t steps = 0);
  Result<UpdateInUse> Update(int64_t number) const;
  // Closes a table's updates, so that it can get another optimizer. The leader drops the current
  // one once all posted updates are applied.
  Status ForgetOptimizer(OpenTable* table);

  // Waits until the leader has applied `version` updates to the table, or returns an error if it
  // cannot. The wait is recorded in meetings().
  Status WaitForVersion(const OpenTable& table, uint64_t version) const;
  // Likewise, but also returns Ok after a failed update: the table is then unchanged, and may be
  // read, saved or loaded.
  Status WaitUntilDone(const OpenTable& table, uint64_t version) const;
  // Whether WaitForAll() returns without waiting.
  static bool HaveReached(const std::vector<RequiredVersion>& required);
  Status WaitForAll(const std::vector<RequiredVersion>& required) const;
  // Calls `then` on the version thread with the result of WaitForAll().
  void WhenReached(std::vector<RequiredVersion> required, std::function<void(const Status&)> then);

  // Calls `then` on the fetching thread, where it may wait for other hosts.
  void OnFetching(std::function<void()> then);
  // Takes over a connected socket; what waits for it fails once the job has ended.
  std::unique_ptr<Connection> Adopt(int socket, const std::string& peer) const;
  // Calls `work` on the summing thread with the HostSum, or with the reason why there is none.
  // Returns false after Close().
  bool OnSumming(std::function<void(Result<HostSum*>)> work);

  // Posts this rank's contribution to an update. The leader applies it together with the posts of
  // the host's other ranks, unless hosts exchange first. REQUIRES: see HostUpdate::Post().
  Status Post(const UpdateInUse& update, const std::vector<KeyGradients>& batch,
              const Contribution& contribution, StepNumbers numbers,
              const ParallelFor& parallel_for);
  // With Exchange::kAllRanks: lets the leader apply the concatenated messages of all ranks, which
  // `messages` returns and holds; on other ranks, records that the leader will.
  void ApplyGathered(const UpdateInUse& update, StepNumbers numbers,
                     std::function<Span<const int64_t>()> messages);

 private:
  static Result<std::shared_ptr<Engine>> On(Result<std::unique_ptr<Store>> store,
                                            const Topology& topology);
  Engine(std::unique_ptr<Store> store, Topology topology);
  Result<HostSum*> OpenedHostSum();

  const std::shared_ptr<Store> store_;
  const pid_t process_;
  WorkerThreads workers_;
  mutable Meetings meetings_;
  mutable Mutex mutex_;
  std::vector<UpdateInUse> updates_ TFHYBRID_GUARDED_BY(mutex_);  // by number
  // Updates, and the table that each lost.
  std::map<int64_t, std::string> ended_ TFHYBRID_GUARDED_BY(mutex_);
  PlacedTables tables_;
  SplitBatches batches_;
  OwnerLinks links_;
  HostPasses passes_;
  ApplyingThread applying_;
  OwnerExchange owners_;
  std::unique_ptr<HostSum> host_sum_;  // null until first asked for; the summing thread's
  SerialThread versions_, fetching_, summing_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ENGINE_H_
