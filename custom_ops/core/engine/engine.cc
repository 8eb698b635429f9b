#include "core/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "core/update/recovery.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
namespace {

constexpr auto kSavePoll = std::chrono::milliseconds(5);

}  // namespace

Engine::Engine(std::unique_ptr<Store> store, Topology topology)
    : store_(std::move(store)),
      process_(getpid()),
      workers_(AllowedProcessors()),
      tables_(store_, std::move(topology)),
      batches_(&tables_),
      links_(tables_.topology().Hosts(), tables_.topology().host),
      passes_(&tables_, &links_, &meetings_),
      applying_(workers_.parallel_for(), &passes_, &batches_.sender()),
      owners_(&tables_, &links_, &batches_, &passes_, &applying_, &meetings_) {}

Result<std::shared_ptr<Engine>> Engine::Open(const StoreConfig& config, const Topology& topology,
                                             std::vector<std::string>* reclaimed) {
  return On(config.local_rank == 0 ? Store::Create(config, reclaimed) : Store::Attach(config),
            topology);
}

Result<std::shared_ptr<Engine>> Engine::Recover(const StoreConfig& config,
                                                const Topology& topology) {
  return On(RecoverStore(config, RunInline), topology);
}

Result<std::shared_ptr<Engine>> Engine::On(Result<std::unique_ptr<Store>> store,
                                           const Topology& topology) {
  TFHYBRID_RETURN_IF_ERROR(store.status());
  std::shared_ptr<Engine> engine(new Engine(store.Take(), topology));
  TFHYBRID_RETURN_IF_ERROR(engine->passes_.Start());
  return engine;
}

void Engine::Close() {
  store_->EndWaits();
  links_.Shut();
  batches_.Close();
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
  owners_.service().Close();
  versions_.Join();
  applying_.Join();
  passes_.Close();
}

void Engine::OnFetching(std::function<void()> then) {
  if (!fetching_.Submit(then)) then();  // it fails at once: the job has ended
}

bool Engine::OnSumming(std::function<void(Result<HostSum*>)> work) {
  return summing_.Submit([this, work = std::move(work)] { work(OpenedHostSum()); });
}

Result<HostSum*> Engine::OpenedHostSum() {
  if (host_sum_ == nullptr) {
    const HostSumRanks ranks{store_->local_rank(), tables_.topology().LocalRanks(),
                             tables_.topology().RankHosts() > 1};
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

std::unique_ptr<Connection> Engine::Adopt(int socket, const std::string& peer) const {
  return std::make_unique<Connection>(socket, peer, tables_.check_alive());
}

Result<int64_t> Engine::OpenUpdate(const std::string& name, const std::vector<std::string>& tables,
                                   const UpdateChoices& choices, int64_t steps) {
  auto opened = std::make_shared<OpenedUpdate>();
  MessageSchema schema;
  Allocations allocations;
  for (const std::string& table : tables) {
    TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> found, tables_.Get(table));
    schema.tables.push_back(table);
    schema.dims.push_back(found->reader->dim());
    opened->tables.push_back(std::move(found));
    allocations.push_back(tables_.AllocationOf(table));
  }
  // Two graphs of one optimizer may train different tables: their messages must not meet.
  opened->name = name + "-" + std::to_string(static_cast<uint64_t>(schema.Signature()));
  TFHYBRID_ASSIGN_OR_RETURN(
      const UpdateSettings settings,
      UpdateSettings::Make(std::move(schema), tables_.topology(), choices, std::move(allocations)));
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
  if (opened->sharded != nullptr && tables_.topology().IsNode()) {
    opened->sharded->thread.Submit(
        [this, update = UpdateInUse(opened)] { owners_.ServeSteps(update); });
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
  std::optional<Meetings::Wait> wait;
  if (!table.reader->Reached(version)) wait.emplace(&meetings_);
  return table.reader->WaitVersion(version, tables_.check_alive());
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
  const auto wait = [this, required = std::move(required), then] { then(WaitForAll(required)); };
  if (!versions_.Submit(wait)) wait();  // it waits no longer than a moment: the job has ended
}

Status Engine::Post(const UpdateInUse& update, const std::vector<KeyGradients>& batch,
                    const Contribution& contribution, StepNumbers numbers,
                    const ParallelFor& parallel_for) {
  const PhaseTimer timer(Phase::kPost);
  HostUpdate* const host_update = update->host_update.get();
  // Before the post, so that a leader that has collected it sees what is used up.
  passes_.rank().CountPost(update->schema().tables);
  Contribution told = contribution;
  told.key_handles = batches_.uses_key_handles();
  if (told.key_handles && told.failure.empty()) told.failure = batches_.Check(batch).message();
  const Status posted = host_update->PostBatch(batch, told, parallel_for);
  for (const auto& table : update->tables) table->CountPost();
  // After a failure too: the leader, this one or another, tells it to all ranks.
  if (update->settings().FromRanks() && store_->is_leader()) {
    applying_.Apply(update, std::move(numbers), [host_update] { return host_update->Collect(); });
  } else if (update->sharded != nullptr) {
    update->sharded->thread.Submit(
        [this, update, numbers = std::move(numbers)] { owners_.Step(update, numbers); });
  }
  return posted;
}

void Engine::ApplyGathered(const UpdateInUse& update, StepNumbers numbers,
                           std::function<Span<const int64_t>()> messages) {
  for (const auto& table : update->tables) table->CountPost();
  if (!store_->is_leader()) return;
  HostUpdate* const host_update = update->host_update.get();
  applying_.Apply(
      update, std::move(numbers),
      [host_update, messages = std::move(messages)]() -> Result<std::vector<GradientMessage>> {
        TFHYBRID_RETURN_IF_ERROR(host_update->PostAll(messages()));
        return host_update->ReadAll();
      });
}

}  // namespace tfhybrid
