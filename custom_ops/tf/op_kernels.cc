#include "tf/op_kernels.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/engine/engine_registry.h"
#include "core/util/phase_times.h"
#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpKernelContext;

absl::Status NamedTables::Read(tensorflow::OpKernelConstruction* context) {
  TF_RETURN_IF_ERROR(context->GetAttr("engine", &number_));
  return context->GetAttr("tables", &names_);
}

Result<TablesInUse> NamedTables::Get(const std::vector<int64_t>& dims) {
  const MutexLock guard(mutex_);
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, EngineOf(number_));
  TablesInUse found = {engine, {}};
  found.tables.reserve(names_.size());
  if (engine_.lock() == engine) {
    // The engine holds them.
    for (const std::weak_ptr<OpenTable>& table : tables_) found.tables.push_back(table.lock());
    return found;
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> table, engine->tables().Get(names_[i]));
    if (table->reader->dim() != dims[i]) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", names_[i], "' has dim ",
                           table->reader->dim(), ". Received: an op for dim ", dims[i]);
    }
    found.tables.push_back(std::move(table));
  }
  tables_.assign(found.tables.begin(), found.tables.end());
  engine_ = engine;
  return found;
}

absl::Status NamedUpdate::Read(tensorflow::OpKernelConstruction* context) {
  TF_RETURN_IF_ERROR(context->GetAttr("engine", &engine_));
  return context->GetAttr("update", &update_);
}

Result<NamedUpdate::InUse> NamedUpdate::Get() const {
  TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, EngineOf(engine_));
  TFHYBRID_ASSIGN_OR_RETURN(UpdateInUse update, engine->Update(update_));
  return InUse{std::move(engine), std::move(update)};
}

void WaitingKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  const Status started = Start(context, done);
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(started), done);
}

void WaitingKernel::Finish(OpKernelContext* context, const Status& status,
                           const DoneCallback& done) {
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(status), done);
  done();
}

Status TablesKernel::Start(OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const TablesInUse in_use, Tables());
  std::vector<RequiredVersion> required;
  const uint64_t staleness = Staleness(context, in_use.engine->batches());
  for (const auto& table : in_use.tables) {
    const uint64_t posted = table->posted;
    required.push_back({table, posted - std::min(posted, staleness)});
  }
  const bool fetches = in_use.engine->tables().AreSharded(in_use.tables);
  if (!fetches && Engine::HaveReached(required)) {
    TFHYBRID_RETURN_IF_ERROR(in_use.engine->WaitForAll(required));
    TFHYBRID_RETURN_IF_ERROR(Run(context, in_use));
    done();
    return Status::Ok();
  }
  auto timer = std::make_shared<std::optional<PhaseTimer>>(std::in_place, Phase::kWait);
  in_use.engine->WhenReached(std::move(required), [=](const Status& waited) {
    timer->reset();
    if (!waited.ok()) return Finish(context, waited, done);
    if (!fetches) return ScheduleRun(context, in_use, done);
    in_use.engine->OnFetching([=] {
      TablesInUse with_rows = in_use;
      const Status fetched = Fetch(context, &with_rows);
      if (!fetched.ok()) return Finish(context, fetched, done);
      ScheduleRun(context, with_rows, done);
    });
  });
  return Status::Ok();
}

void TablesKernel::ScheduleRun(OpKernelContext* context, const TablesInUse& in_use,
                               const DoneCallback& done) {
  OnOpThread(context, [=] { Finish(context, Run(context, in_use), done); });
}

NamedTablesKernel::NamedTablesKernel(tensorflow::OpKernelConstruction* context)
    : TablesKernel(context) {
  OP_REQUIRES_OK(context, tables_.Read(context));
  OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
  OP_REQUIRES(context, !names().empty() && names().size() == dims_.size(),
              absl::InvalidArgumentError(
                  "tables and dims have one entry for each input. Received: " +
                  std::to_string(names().size()) + " and " + std::to_string(dims_.size())));
}

Status ExchangeKernel::Start(OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
  TFHYBRID_RETURN_IF_ERROR(in_use.update->CheckExchanges());
  return in_use.engine->applying().Submit(
      [=] { Finish(context, Run(context, &in_use.engine->applying(), in_use.update), done); });
}

}  // namespace tfhybrid
