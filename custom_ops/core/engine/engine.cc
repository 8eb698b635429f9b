#include "core/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "core/engine/held_writers.h"
#include "core/update/recovery.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
namespace {

constexpr auto kSavePoll = std::chrono::milliseconds(5);

// What `body` (-> Status or a Result) returns, or that there was no memory for it. Once the
// update's journal has begun there is no way back: the process ends, and whoever takes the store
// over finishes the update.
template <typename Body>
auto WithinMemory(const OpenedUpdate& update, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    if (update.host_update->has_begun()) std::terminate();
    return Status::Error(StatusCode::kResourceExhausted, "Out of memory. No table was updated");
  }
}

}  // namespace

Engine::Engine(std::unique_ptr<Store> store, Topology topology)
    : store_(std::move(store)),
      topology_(std::move(topology)),
      process_(getpid()),
      workers_(AllowedProcessors()),
      threads_([this](int64_t total, int64_t cost,
                      const std::function<void(int64_t begin, int64_t end)>& work) {
        workers_.Run(total, cost, work);
      }),
      batch_keys_(topology_.host),
      sender_({[this](const std::string& name) { return Table(name); },
               [this](const std::vector<TableRead>& reads) {
                 return Read(reads, std::numeric_limits<int>::max());
               },
               [this](int64_t ticket) { return batch_keys_.Of(ticket); }}),
      links_(topology_.Hosts()),
      service_({[this](const std::string& name) { return AwaitTable(name); },
                [this](const std::vector<TableRead>& reads) {
                  return Read(reads, std::numeric_limits<int>::max());
                },
                [this](const std::vector<TableRead>& reads, const CopyRows& copy) {
                  return TryReadVersion(reads, [this] { return store_->CheckLeader(); }, copy);
                },
                [this](const std::string& table, Span<const int64_t> handles, int64_t* keys) {
                  return batch_keys_.Find(table, handles, keys);
                },
                [this](int64_t host, Frame frame) { return TakePassFrame(host, std::move(frame)); },
                [this](const Status& why) {
                  if (keeper_ != nullptr) keeper_->Fail(why);
                }}) {}

Result<std::shared_ptr<Engine>> Engine::Open(const StoreConfig& config, const Topology& topology,
                                             std::vector<std::string>* reclaimed) {
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, config.local_rank == 0
                                                              ? Store::Create(config, reclaimed)
                                                              : Store::Attach(config));
  return On(std::move(store), topology);
}

Result<std::shared_ptr<Engine>> Engine::Recover(const StoreConfig& config,
                                                const Topology& topology) {
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, RecoverStore(config, RunInline));
  return On(std::move(store), topology);
}

Result<std::shared_ptr<Engine>> Engine::On(std::unique_ptr<Store> store, const Topology& topology) {
  std::shared_ptr<Engine> engine(new Engine(std::move(store), topology));
  TFHYBRID_RETURN_IF_ERROR(engine->StartPasses());
  return engine;
}

void Engine::Close() {
  store_->EndWaits();
  links_.Shut();
  received_.Close();
  sender_.Close();
  fetching_.Join();
  summing_.Join();
  std::vector<UpdateInUse> updates;
  {
    const MutexLock guard(mutex_);
    updates = updates_;
  }
  // Before the applying thread, which they wait for.
  for (const UpdateInUse& update : updates) {
    if (update->sharded != nullptr) update->sharded->thread.Join();
  }
  service_.Close();
  if (keeper_ != nullptr) keeper_->Close();
  for (const auto& thread : announced_) thread->Join();
  versions_.Join();
  applying_.Join();
  if (feeds_ != nullptr) feeds_->Close();
}

bool Engine::OnSumming(std::function<void(Result<HostSum*>)> work) {
  return summing_.Submit([this, work = std::move(work)] { work(OpenedHostSum()); });
}

Result<HostSum*> Engine::OpenedHostSum() {
  if (host_sum_ == nullptr) {
    const HostSumRanks ranks{store_->local_rank(), topology_.LocalRanks(),
                             topology_.RankHosts() > 1};
    TFHYBRID_ASSIGN_OR_RETURN(
        host_sum_,
        HostSum::Open(store_->directory() + "/dense", store_->token(), ranks,
                      [this](int64_t rank) { return store_->CheckRank(static_cast<int>(rank)); }));
  }
  return host_sum_.get();
}

Status Engine::CheckProcess() const {
  if (getpid() == process_) return Status::Ok();
  return Status::Error(
      StatusCode::kFailedPrecondition,
      "A forked child cannot use the tables of its parent: start it by 'spawn', or "
      "fork before tfhybrid.init()");
}

Result<std::shared_ptr<OpenTable>> Engine::Table(const std::string& name) const {
  std::shared_ptr<OpenTable> table = store_->Find(name);
  if (table == nullptr || !table->named) {
    return Status::Error(StatusCode::kNotFound, "No table named '", name,
                         "' is open in this process: build its layer after tfhybrid.init() and, "
                         "with resume='memory', call tfhybrid.checkpoint.restore() before it is "
                         "used");
  }
  return table;
}

Result<int64_t> Engine::OpenUpdate(const std::string& name, const std::vector<std::string>& tables,
                                   const UpdateChoices& choices, int64_t steps) {
  auto opened = std::make_shared<OpenedUpdate>();
  MessageSchema schema;
  Allocations allocations;
  for (const std::string& table : tables) {
    TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> found, Table(table));
    schema.tables.push_back(table);
    schema.dims.push_back(found->reader->dim());
    opened->tables.push_back(std::move(found));
    allocations.push_back(AllocationOf(table));
  }
  // Two graphs of one optimizer may train different tables: their messages must not meet.
  opened->name = name + "-" + std::to_string(static_cast<uint64_t>(schema.Signature()));
  TFHYBRID_ASSIGN_OR_RETURN(
      const UpdateSettings settings,
      UpdateSettings::Make(std::move(schema), topology_, choices, std::move(allocations)));
  const MutexLock guard(mutex_);
  for (size_t number = 0; number < updates_.size(); ++number) {
    if (updates_[number]->name != opened->name) continue;
    if (updates_[number]->settings() == settings) return static_cast<int64_t>(number);
    return Status::Error(StatusCode::kInvalidArgument, "The update '", name,
                         "' is open with other settings");
  }
  TFHYBRID_ASSIGN_OR_RETURN(opened->host_update, HostUpdate::Open(store_, opened->name, settings));
  if (settings.BetweenLeaders() && store_->is_leader()) {
    opened->exchange = std::make_unique<HostExchange>(opened->host_update.get());
    if (settings.sharded) {
      opened->sharded = std::make_unique<ShardedUpdate>();
      opened->sharded->steps = steps;
    }
  }
  if (opened->sharded != nullptr && topology_.IsNode()) {
    opened->sharded->thread.Submit([this, update = UpdateInUse(opened)] { ServeSteps(update); });
  }
  updates_.push_back(std::move(opened));
  return static_cast<int64_t>(updates_.size()) - 1;
}

Result<UpdateInUse> Engine::Update(int64_t number) const {
  const MutexLock guard(mutex_);
  if (const auto ended = ended_.find(number); ended != ended_.end()) {
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", ended->second,
                         "' is trained by an optimizer that was built later. A table has one "
                         "optimizer at a time: to train it with two in turn, give each a table of "
                         "its own, or one optimizer to both");
  }
  if (number >= 0 && number < static_cast<int64_t>(updates_.size())) {
    return updates_[static_cast<size_t>(number)];
  }
  return Status::Error(StatusCode::kNotFound, "This engine has ", updates_.size(),
                       " updates open. Received: the number ", number);
}

Status Engine::ForgetOptimizer(OpenTable* table) {
  {
    const MutexLock guard(mutex_);
    for (size_t number = 0; number < updates_.size(); ++number) {
      for (const std::shared_ptr<OpenTable>& its : updates_[number]->tables) {
        if (its.get() == table) ended_.emplace(number, table->reader->name());
      }
    }
  }
  TFHYBRID_RETURN_IF_ERROR(WaitUntilDone(*table, table->posted));
  if (table->writer == nullptr) return Status::Ok();
  for (;;) {
    {
      const MutexLock writing(table->writing);
      TFHYBRID_RETURN_IF_ERROR(table->writer->chunks().files().CheckNoRows());
      if (table->writer->snapshots().frozen() == nullptr) {
        table->writer->ForgetOptimizer();
        return Status::Ok();
      }
    }
    // A checkpoint is being written, state and all, on a thread of its own.
    std::this_thread::sleep_for(kSavePoll);
  }
}

Status Engine::WaitForVersion(const OpenTable& table, uint64_t version) const {
  return table.reader->WaitVersion(version, [this] { return store_->CheckLeader(); });
}

Status Engine::WaitUntilDone(const OpenTable& table, uint64_t version) const {
  const Status waited = WaitForVersion(table, version);
  return table.reader->Reached(version) ? Status::Ok() : waited;
}

bool Engine::HaveReached(const std::vector<RequiredVersion>& required) {
  return std::all_of(required.begin(), required.end(), [](const RequiredVersion& each) {
    return each.table->reader->Reached(each.version);
  });
}

Status Engine::WaitForAll(const std::vector<RequiredVersion>& required) const {
  for (const RequiredVersion& each : required) {
    TFHYBRID_RETURN_IF_ERROR(WaitForVersion(*each.table, each.version));
  }
  return Status::Ok();
}

void Engine::WhenReached(std::vector<RequiredVersion> required,
                         std::function<void(const Status&)> then) {
  const auto wait = [this, required = std::move(required), then] {
    meetings_.BeginWait();
    const Status waited = WaitForAll(required);
    meetings_.EndWait();
    then(waited);
  };
  if (!versions_.Submit(wait)) wait();  // it waits no longer than a moment: the job has ended
}

Result<std::vector<uint64_t>> Engine::Read(const std::vector<TableRead>& reads,
                                           int timeout_ms) const {
  return ReadVersion(reads, timeout_ms, [this] { return store_->CheckLeader(); });
}

Status Engine::Post(const UpdateInUse& update, const std::vector<KeyGradients>& batch,
                    const Contribution& contribution, StepNumbers numbers,
                    const ParallelFor& parallel_for) {
  const PhaseTimer timer(Phase::kPost);
  HostUpdate* const host_update = update->host_update.get();
  // Before the post, so that a leader that has collected it sees what is used up.
  passes_->CountPost(update->schema().tables);
  Contribution told = contribution;
  told.key_handles = uses_key_handles_;
  if (told.key_handles && told.failure.empty()) told.failure = CheckKeyHandles(batch).message();
  const Status posted = host_update->PostBatch(batch, told, parallel_for);
  for (const auto& table : update->tables) table->CountPost();
  // After a failure too: the leader, this one or another, tells it to all ranks.
  if (update->settings().FromRanks() && store_->is_leader()) {
    Apply(update, std::move(numbers), [host_update] { return host_update->Collect(); });
  } else if (update->sharded != nullptr) {
    update->sharded->thread.Submit(
        [this, update, numbers = std::move(numbers)] { StepSharded(update, numbers); });
  }
  return posted;
}

void Engine::Apply(const UpdateInUse& update, StepNumbers numbers,
                   std::function<Result<std::vector<GradientMessage>>()> collect) {
  // The update holds its tables, so that their mappings outlive it.
  Submit([this, update, numbers = std::move(numbers), collect = std::move(collect)] {
    const Result<std::vector<GradientMessage>> messages = WithinMemory(*update, collect);
    const HeldWriters writers(update->tables);
    writers.Report(WithinMemory(*update, [&] {
      return messages.ok()
                 ? update->host_update->Apply(messages.value(), numbers, writers.all(), threads_)
                 : messages.status();
    }));
  });
}

void Engine::ApplyGathered(const UpdateInUse& update, StepNumbers numbers,
                           std::function<Span<const int64_t>()> messages) {
  for (const auto& table : update->tables) table->CountPost();
  if (!store_->is_leader()) return;
  HostUpdate* const host_update = update->host_update.get();
  Apply(update, std::move(numbers),
        [host_update, messages = std::move(messages)]() -> Result<std::vector<GradientMessage>> {
          TFHYBRID_RETURN_IF_ERROR(host_update->PostAll(messages()));
          return host_update->ReadAll();
        });
}

Status Engine::CheckExchanges(const OpenedUpdate& update) const {
  if (update.exchange == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "The leader of a host exchanges gradients with others, nobody else");
  }
  if (update.sharded != nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "Gradients of sharded tables travel by the row service alone");
  }
  return Status::Ok();
}

Status Engine::SubmitExchange(const UpdateInUse& update, std::function<void()> work) {
  TFHYBRID_RETURN_IF_ERROR(CheckExchanges(*update));
  if (Submit([update, work = std::move(work)] { work(); })) return Status::Ok();
  return Ended();
}

Status Engine::OnApplying(const std::function<Status()>& work) {
  std::packaged_task<Status()> run(work);
  std::future<Status> done = run.get_future();
  if (!Submit([&run] { run(); })) return Ended();
  return done.get();
}

Status Engine::Ended() {
  return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
}

void Engine::Merge(const OpenedUpdate& update) const {
  // Not held while other processes are waited for; they are only asked for their room.
  std::vector<TableWriter*> writers;
  for (const auto& table : update.tables) writers.push_back(table->writer.get());
  update.exchange->Merge(writers, threads_);
}

HostExchange::Staged Engine::Stage(const OpenedUpdate& update, Span<const int64_t> messages) const {
  const HeldWriters writers(update.tables);
  return update.exchange->Stage(messages, writers.all(), threads_);
}

void Engine::Commit(const UpdateInUse& update, StepNumbers numbers, std::string complaint) {
  Submit([this, update, numbers = std::move(numbers), complaint = std::move(complaint)] {
    const HeldWriters writers(update->tables);
    writers.Report(WithinMemory(*update, [&] {
      if (!complaint.empty()) return Status::Error(StatusCode::kFailedPrecondition, complaint);
      TFHYBRID_RETURN_IF_ERROR(update->host_update->Commit(numbers, writers.all(), threads_));
      FeedPasses(*update);
      return Status::Ok();
    }));
    sender_.Changed();
  });
}

}  // namespace tfhybrid
