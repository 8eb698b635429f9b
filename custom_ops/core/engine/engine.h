// Engine: one store, the updates of its tables, and the threads on which they are applied and
// waited for.
//
//   version thread    where lookups wait for a table's version. First in first out cannot deadlock:
//                     what a wait needs was posted before by every rank that waits, and is done by
//                     the leader's applying thread
//   applying thread   where the leader collects and applies updates, in the order in which it
//                     posted its own
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
// Thread-safe. Held by shared_ptr; not to be used in forked children, which have none of its
// threads.
#ifndef TFHYBRID_CORE_ENGINE_ENGINE_H_
#define TFHYBRID_CORE_ENGINE_ENGINE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/engine/fetched_rows.h"
#include "core/engine/meetings.h"
#include "core/engine/owner_links.h"
#include "core/engine/received_rows.h"
#include "core/engine/row_feeds.h"
#include "core/engine/row_sender.h"
#include "core/engine/row_service.h"
#include "core/engine/serial_thread.h"
#include "core/engine/sharded_step.h"
#include "core/engine/version_read.h"
#include "core/engine/worker_threads.h"
#include "core/exchange/batch_keys.h"
#include "core/exchange/host_exchange.h"
#include "core/exchange/host_sum.h"
#include "core/exchange/row_frames.h"
#include "core/passes/device_tier.h"
#include "core/passes/pass_keeper.h"
#include "core/passes/rank_passes.h"
#include "core/placement/allocation.h"
#include "core/placement/topology.h"
#include "core/store/store.h"
#include "core/update/host_update.h"
#include "core/util/mutex.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// Updates that a table must have.
struct RequiredVersion {
  std::shared_ptr<OpenTable> table;
  uint64_t version;
};

// What the leaders of hosts with sharded tables need for an update: a thread that waits for the
// others, and the number of steps done.
struct ShardedUpdate {
  SerialThread thread;
  std::atomic<int64_t> steps = 0;  // written by the thread
};

// An update that an engine has open. Held by shared_ptr, as long as it runs.
struct OpenedUpdate {
  std::string name;
  OpenTables tables;
  std::shared_ptr<HostUpdate> host_update;
  std::unique_ptr<HostExchange> exchange;  // null where leaders do not exchange, or in another rank
  std::unique_ptr<ShardedUpdate> sharded;  // null where no table is, or in another rank

  const UpdateSettings& settings() const { return host_update->settings(); }
  const MessageSchema& schema() const { return settings().schema; }
};
using UpdateInUse = std::shared_ptr<const OpenedUpdate>;

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
  const ParallelFor& threads() const { return threads_; }
  Meetings& meetings() { return meetings_; }
  // Ok in the process that opened it.
  Status CheckProcess() const;

  // Like Store::OpenNamed(), for a table with that placement over the hosts of the job.
  Status OpenPlaced(TableConfig config, const Placement& placement, int timeout_ms);
  // The owners of a table's keys; null if this host has all rows.
  std::shared_ptr<const Allocation> AllocationOf(const std::string& table) const;
  // Returns a function that tells whether this host owns a key of a table; null if it has all rows.
  std::function<bool(int64_t key)> OwnsOf(const std::string& table) const;
  // The open table of that name, or an error that says what the user must do first.
  Result<std::shared_ptr<OpenTable>> Table(const std::string& name) const;
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
  // cannot.
  Status WaitForVersion(const OpenTable& table, uint64_t version) const;
  // Likewise, but also returns Ok after a failed update: the table is then unchanged, and may be
  // read, saved or loaded.
  Status WaitUntilDone(const OpenTable& table, uint64_t version) const;
  // Whether WaitForAll() returns without waiting.
  static bool HaveReached(const std::vector<RequiredVersion>& required);
  Status WaitForAll(const std::vector<RequiredVersion>& required) const;
  // Calls `then` on the version thread with the result of WaitForAll(). The wait is recorded in
  // meetings().
  void WhenReached(std::vector<RequiredVersion> required, std::function<void(const Status&)> then);

  // Copies embeddings of several tables at one common update, and returns the version of each
  // (core/engine/version_read.h).
  Result<std::vector<uint64_t>> Read(const std::vector<TableRead>& reads, int timeout_ms) const;

  // The rows that the features of sharded tables need, as of FetchedRows::Fetch(). Waits for their
  // owners, which is recorded in meetings().
  Result<std::shared_ptr<const FetchedRows>> Fetch(const std::vector<FeatureRead>& features,
                                                   const ParallelFor& parallel_for);
  // Data nodes split the batches of this rank: from now on lookups of features and updates get key
  // handles instead of keys (core/placement/key_handle.h).
  void UseKeyHandles() { uses_key_handles_ = true; }
  bool uses_key_handles() const { return uses_key_handles_; }
  // Tickets of batches that features were looked up of, and that were not taken yet; at most
  // `max_count` of them.
  std::vector<int64_t> TakeLookedUp(int64_t max_count);
  // What was read of batches whose rows may lack updates, and not taken yet, oldest first; at
  // most `max_count` of them.
  std::vector<RowRead> TakeReads(int64_t max_count);
  // An embedding node's: its keys of batches that trainers have.
  BatchKeys& batch_keys() { return batch_keys_; }
  // Rows of batches that an embedding node sends unasked, and that a trainer receives; each takes
  // over a connected socket, the node's to a rank, the trainer's to an owner.
  RowSender& sender() { return sender_; }
  ReceivedRows& received() { return received_; }
  const ReceivedRows& received() const { return received_; }
  void SendRows(int64_t rank, int socket, const std::string& peer);
  void ReceiveRows(int64_t owner, int socket, const std::string& peer);
  // Rows [first, first + count) of a table in the order of another host, or as many as exist.
  struct Scanned {
    int64_t table_rows;
    int64_t table_bytes;  // in shared memory
    std::vector<int64_t> keys;
    std::vector<float> embeddings;
  };
  Result<Scanned> Scan(int64_t host, const AskedRows& rows);
  // The keys of a table in a pass of this rank.
  struct PassKeys {
    std::string table;
    Span<const int64_t> keys;
    const int32_t* batch_of;  // of each key
  };
  // A pass of those keys, and how many bytes it needs: in shared memory, or on this rank's device
  // where that is more.
  struct AskedPass {
    std::vector<RequestedKeys> requested;
    std::vector<DeviceTier::Keys> on_device;
    int64_t bytes;
  };
  Result<AskedPass> PlanPass(const std::vector<PassKeys>& keys) const;
  // Returns its number.
  Result<int64_t> AnnouncePass(AskedPass asked, int64_t batches, bool refuses);
  // A batch of it begins, from 0.
  Status BeginBatch(int64_t pass, int64_t batch);
  Status EndPass(int64_t pass);
  RankPasses& passes() { return *passes_; }
  DeviceTier& device_tier() { return device_tier_; }
  // True for keys whose rows can be read without waiting for another host or a disk: they are in
  // this host's memory or in an open pass.
  std::function<bool(int64_t key)> IsAtHand(const OpenTable& table);
  // Rows are to be overwritten from elsewhere: passes have no use any longer.
  void EndPasses();
  // Zeros where this process does not lead its host, or there is one host.
  int64_t CountOfPasses(PassCounter counter) const;
  // Whether features of these tables are to be fetched.
  bool IsSharded(const OpenTables& tables) const;
  // Calls `then` on the fetching thread, where it may wait for other hosts.
  void OnFetching(std::function<void()> then);

  // Ok for the number of another host.
  Status CheckOtherHost(int64_t host) const;
  // A connected socket to the leader of another host, or from a rank of one, which the engine owns
  // from then on. REQUIRES: CheckOtherHost() is ok.
  void Connect(int64_t host, LinkPurpose purpose, int socket, const std::string& peer);
  void Serve(int64_t host, LinkPurpose purpose, int socket, const std::string& peer);

  // This process will read no more rows of other hosts.
  void EndReads() { links_.ShutReads(); }
  // Ranks of other hosts that may still read this host's rows.
  int64_t CountOfReaders() { return service_.CountOfReaders(); }

  // Calls `work` on the summing thread with the HostSum, or with the reason why there is none.
  // Returns false after Close().
  bool OnSumming(std::function<void(Result<HostSum*>)> work);

  // Posts this rank's contribution to an update. The leader applies it together with the posts of
  // the host's other ranks, unless hosts exchange first. REQUIRES: see HostUpdate::Post().
  Status Post(const UpdateInUse& update, const std::vector<KeyGradients>& batch,
              const Contribution& contribution, StepNumbers numbers,
              const ParallelFor& parallel_for);
  // On the leader. Applies the messages that `collect` returns, on the applying thread. The result
  // reaches all who wait for the tables' next version.
  void Apply(const UpdateInUse& update, StepNumbers numbers,
             std::function<Result<std::vector<GradientMessage>>()> collect);
  // With Exchange::kAllRanks: lets the leader apply the concatenated messages of all ranks, which
  // `messages` returns and holds; on other ranks, records that the leader will.
  void ApplyGathered(const UpdateInUse& update, StepNumbers numbers,
                     std::function<Span<const int64_t>()> messages);
  // Ok for the leader if hosts exchange the parts of an update that the caller sends.
  Status CheckExchanges(const OpenedUpdate& update) const;
  // Runs `work` on the applying thread, after earlier work, and waits for it.
  Status OnApplying(const std::function<Status()>& work);
  // Without waiting, where CheckExchanges() is ok.
  Status SubmitExchange(const UpdateInUse& update, std::function<void()> work);
  // In such work: HostExchange::Merge() and Stage() for the update's tables.
  void Merge(const OpenedUpdate& update) const;
  HostExchange::Staged Stage(const OpenedUpdate& update, Span<const int64_t> messages) const;
  // Applies the staged update on the applying thread, or tells all who wait why it failed.
  void Commit(const UpdateInUse& update, StepNumbers numbers, std::string complaint);
  // Runs `work` on the applying thread; false after Close().
  bool Submit(std::function<void()> work) { return applying_.Submit(std::move(work)); }

 private:
  static Result<std::shared_ptr<Engine>> On(std::unique_ptr<Store> store, const Topology& topology);
  Engine(std::unique_ptr<Store> store, Topology topology);
  // The leader's: a step of an update with sharded tables, on the update's thread.
  void StepSharded(const UpdateInUse& update, const StepNumbers& numbers);
  // An embedding node's: all steps that others bring, until they are gone.
  void ServeSteps(const UpdateInUse& update);
  // `numbers`: null on an embedding node.
  Result<ShardedStep::Agreed> AgreeWithOwners(const UpdateInUse& update,
                                              const StepNumbers* numbers);
  Result<HostSum*> OpenedHostSum();
  void NoteLookedUp(const FetchedRows& fetched);
  // Ok where all keys are key handles of nodes.
  Status CheckKeyHandles(const std::vector<KeyGradients>& batch) const;
  // Commits, or tells all who wait why nothing will come; whether it commits.
  bool Finish(const UpdateInUse& update, Result<ShardedStep::Agreed> agreed);
  Status StartPasses();
  Status TakePassFrame(int64_t host, Frame frame);
  Status TakeAnnouncement(int64_t host, Span<const int64_t> words);
  // To an owner, which may be this host.
  Status TellOwner(int64_t owner, FrameKind kind, AnnouncedKeys keys);
  // The leader's: lets the passes of hosts follow an update that was applied.
  void FeedPasses(const OpenedUpdate& update);
  static Status Ended();
  // The open table of that name; waits until this process has opened it.
  Result<std::shared_ptr<OpenTable>> AwaitTable(const std::string& name) const;

  const std::shared_ptr<Store> store_;
  const Topology topology_;
  const pid_t process_;
  WorkerThreads workers_;
  const ParallelFor threads_;
  Meetings meetings_;
  mutable Mutex mutex_;
  std::vector<UpdateInUse> updates_ TFHYBRID_GUARDED_BY(mutex_);  // by number
  // Updates, and the table that each lost.
  std::map<int64_t, std::string> ended_ TFHYBRID_GUARDED_BY(mutex_);
  // Allocations of sharded tables, by name.
  std::map<std::string, std::shared_ptr<const Allocation>> allocations_ TFHYBRID_GUARDED_BY(mutex_);
  std::set<int64_t> looked_up_ TFHYBRID_GUARDED_BY(mutex_);  // tickets
  std::deque<RowRead> reads_ TFHYBRID_GUARDED_BY(mutex_);
  std::atomic<bool> uses_key_handles_{false};
  BatchKeys batch_keys_;
  RowSender sender_;
  ReceivedRows received_;
  OwnerLinks links_;
  std::unique_ptr<RankPasses> passes_;
  DeviceTier device_tier_;
  std::unique_ptr<RowFeeds> feeds_;     // null where there is one host, or in another rank
  std::unique_ptr<PassKeeper> keeper_;  // likewise
  // Where what a host announces is read; by host, likewise.
  std::vector<std::unique_ptr<SerialThread>> announced_;
  RowService service_;
  std::unique_ptr<HostSum> host_sum_;  // null until first asked for; the summing thread's
  SerialThread versions_, applying_, fetching_, summing_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ENGINE_H_
