#include "tf/tables_kernel.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/util/phase_times.h"

namespace tfhybrid {

using tensorflow::OpKernelContext;

void TablesKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  const Status status = Start(context, done);
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(status), done);
}

Status TablesKernel::Start(OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const TablesInUse in_use, Tables());
  std::vector<RequiredVersion> required;
  const uint64_t staleness = Staleness(context, *in_use.engine);
  for (const auto& table : in_use.tables) {
    const uint64_t posted = table->posted;
    required.push_back({table, posted - std::min(posted, staleness)});
  }
  const bool fetches = in_use.engine->IsSharded(in_use.tables);
  if (!fetches && Engine::HaveReached(required)) {
    TFHYBRID_RETURN_IF_ERROR(in_use.engine->WaitForAll(required));
    TFHYBRID_RETURN_IF_ERROR(Run(context, in_use));
    done();
    return Status::Ok();
  }
  auto timer = std::make_shared<std::optional<PhaseTimer>>(std::in_place, Phase::kWait);
  in_use.engine->WhenReached(std::move(required), [=](const Status& waited) {
    timer->reset();
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(waited), done);
    if (!fetches) {
      ScheduleRun(context, in_use, done);
      return;
    }
    in_use.engine->OnFetching([=] {
      TablesInUse with_rows = in_use;
      const Status fetched = Fetch(context, &with_rows);
      OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(fetched), done);
      ScheduleRun(context, with_rows, done);
    });
  });
  return Status::Ok();
}

void TablesKernel::ScheduleRun(OpKernelContext* context, const TablesInUse& in_use,
                               const DoneCallback& done) {
  OnOpThread(context, [=] {
    const Status ran = Run(context, in_use);
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(ran), done);
    done();
  });
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

}  // namespace tfhybrid
