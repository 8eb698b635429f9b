#include "core/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/engine/held_writers.h"
#include "core/update/recovery.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
Engine::Engine(std::unique_ptr<Store> store)
    : store_(std::move(store)),
      process_(getpid()),
      workers_(AllowedProcessors()),
      threads_([this](int64_t total, int64_t cost,
                      const std::function<void(int64_t begin, int64_t end)>& work) {
        workers_.Run(total, cost, work);
      }) {}

Result<std::shared_ptr<Engine>> Engine::Open(const StoreConfig& config,
                                             std::vector<std::string>* reclaimed) {
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, config.local_rank == 0
                                                              ? Store::Create(config, reclaimed)
                                                              : Store::Attach(config));
  return std::shared_ptr<Engine>(new Engine(std::move(store)));
}

Result<std::shared_ptr<Engine>> Engine::Recover(const StoreConfig& config) {
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, RecoverStore(config, RunInline));
  return std::shared_ptr<Engine>(new Engine(std::move(store)));
}

void Engine::Close() {
  store_->EndWaits();
  waiting_.Join();
  applying_.Join();
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

Result<size_t> Engine::OpenUpdate(const std::string& name, const UpdateSettings& settings) {
  // Two graphs of one optimizer may train different tables: their messages must not meet.
  const std::string full =
      name + "-" + std::to_string(static_cast<uint64_t>(settings.schema.Signature()));
  const std::lock_guard<std::mutex> guard(mutex_);
  for (size_t number = 0; number < updates_.size(); ++number) {
    if (updates_[number].name != full) continue;
    if (updates_[number].update->settings() == settings) return number;
    return Status::Error(StatusCode::kInvalidArgument, "The update '", name,
                         "' is open with other settings");
  }
  OpenedUpdate opened = {full, nullptr, nullptr};
  TFHYBRID_ASSIGN_OR_RETURN(opened.update, HostUpdate::Open(store_, full, settings));
  if (settings.BetweenLeaders() && store_->is_leader()) {
    opened.exchange = std::make_unique<HostExchange>(opened.update.get());
  }
  updates_.push_back(std::move(opened));
  return updates_.size() - 1;
}

Result<std::shared_ptr<HostUpdate>> Engine::Update(size_t number) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (number < updates_.size()) return updates_[number].update;
  return Status::Error(StatusCode::kNotFound, "This engine has ", updates_.size(),
                       " updates open. Received: the number ", number);
}

HostExchange* Engine::ExchangeOf(const HostUpdate& update) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (const OpenedUpdate& opened : updates_) {
    if (opened.update.get() == &update) return opened.exchange.get();
  }
  return nullptr;
}

Status Engine::WaitForVersion(const OpenTable& table, uint64_t version) const {
  return table.reader->WaitVersion(version, [this] { return store_->CheckLeader(); });
}

Status Engine::WaitUntilDone(const OpenTable& table, uint64_t version) const {
  const Status waited = WaitForVersion(table, version);
  return table.reader->Reached(version) ? Status::Ok() : waited;
}

bool Engine::HaveReached(const std::vector<Wanted>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [](const Wanted& want) { return want.table->reader->Reached(want.version); });
}

Status Engine::WaitForAll(const std::vector<Wanted>& wanted) const {
  for (const Wanted& want : wanted) {
    TFHYBRID_RETURN_IF_ERROR(WaitForVersion(*want.table, want.version));
  }
  return Status::Ok();
}

void Engine::WhenReached(std::vector<Wanted> wanted, std::function<void(const Status&)> then) {
  const auto wait = [this, wanted = std::move(wanted), then] { then(WaitForAll(wanted)); };
  if (!waiting_.Submit(wait)) wait();  // it waits no longer than a moment: the job has ended
}

Result<std::vector<uint64_t>> Engine::Read(const std::vector<TableRead>& reads,
                                           int timeout_ms) const {
  return ReadVersion(reads, timeout_ms, [this] { return store_->CheckLeader(); });
}

Status Engine::Post(const OpenTables& tables, const std::shared_ptr<HostUpdate>& update,
                    const std::vector<KeyGradients>& batch, const Contribution& contribution,
                    StepNumbers numbers, const ParallelFor& parallel_for) {
  const PhaseTimer timer(Phase::kPost);
  const Status posted = update->PostBatch(batch, contribution, parallel_for);
  for (const auto& table : tables) table->CountPost();
  // After a failure too: the leader, this one or another, tells it to all ranks.
  if (update->settings().FromRanks() && tables.front()->writer != nullptr) {
    Apply(tables, update, std::move(numbers), [update] { return update->Collect(); });
  }
  return posted;
}

void Engine::Apply(const OpenTables& tables, const std::shared_ptr<HostUpdate>& update,
                   StepNumbers numbers,
                   std::function<Result<std::vector<GradientMessage>>()> collect) {
  // The tables are held, so that their mappings outlive the update.
  Submit([this, tables, update, numbers = std::move(numbers), collect = std::move(collect)] {
    const Result<std::vector<GradientMessage>> messages = collect();
    const HeldWriters writers(tables);
    writers.Report(messages.ok() ? update->Apply(messages.value(), numbers, writers.all(), threads_)
                                 : messages.status());
  });
}

Status Engine::SubmitExchange(const HostUpdate& update, std::function<void(HostExchange*)> work) {
  HostExchange* const exchange = ExchangeOf(update);
  if (exchange == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "The leader of a host exchanges gradients with others, nobody else");
  }
  if (Submit([exchange, work = std::move(work)] { work(exchange); })) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
}

void Engine::Merge(const OpenTables& tables, HostExchange* exchange) const {
  // Not held while other processes are waited for; they are only asked for their room.
  std::vector<TableWriter*> writers;
  for (const auto& table : tables) writers.push_back(table->writer.get());
  exchange->Merge(writers, threads_);
}

HostExchange::Staged Engine::Stage(const OpenTables& tables, HostExchange* exchange,
                                   Span<const int64_t> messages) const {
  const HeldWriters writers(tables);
  return exchange->Stage(messages, writers.all(), threads_);
}

void Engine::Commit(const OpenTables& tables, const std::shared_ptr<HostUpdate>& update,
                    StepNumbers numbers, std::string complaint) {
  Submit([this, tables, update, numbers = std::move(numbers), complaint = std::move(complaint)] {
    const HeldWriters writers(tables);
    writers.Report(complaint.empty() ? update->Commit(numbers, writers.all(), threads_)
                                     : Status::Error(StatusCode::kFailedPrecondition, complaint));
  });
}

}  // namespace tfhybrid
