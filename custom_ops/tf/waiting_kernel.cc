#include "tf/waiting_kernel.h"

#include <memory>
#include <utility>

#include "core/process_store.h"
#include "core/util/phase_times.h"
#include "tf/background.h"

namespace tfhybrid {
namespace {

struct Wanted {
  std::shared_ptr<OpenTable> table;
  uint64_t version;
};

Status WaitAll(const std::vector<Wanted>& wanted) {
  for (const Wanted& want : wanted) {
    TFHYBRID_RETURN_IF_ERROR(WaitForVersion(*want.table, want.version));
  }
  return Status::Ok();
}

}  // namespace

WaitingKernel::WaitingKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
  std::vector<std::string> names;
  OP_REQUIRES_OK(context, context->GetAttr("tables", &names));
  OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
  OP_REQUIRES(context, !names.empty() && names.size() == dims_.size(),
              tensorflow::errors::InvalidArgument(
                  "tables and dims have one entry for each input. Received: ", names.size(),
                  " and ", dims_.size()));
  tables_.SetNames(std::move(names));
}

void WaitingKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Status status = Start(context, done);
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(status), done);
}

Status WaitingKernel::Start(tensorflow::OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const OpenTables tables, tables_.Get(dims_));
  std::vector<Wanted> wanted;
  bool ready = true;
  for (const auto& table : tables) {
    wanted.push_back({table, table->posted.load()});
    ready = ready && table->reader->Reached(wanted.back().version);
  }
  if (ready) {
    TFHYBRID_RETURN_IF_ERROR(WaitAll(wanted));
    TFHYBRID_RETURN_IF_ERROR(Run(context, tables));
    done();
    return Status::Ok();
  }
  auto timer = std::make_shared<const PhaseTimer>(Phase::kWait);
  WaitingThread().Submit([this, context, done, tables, wanted = std::move(wanted),
                          timer = std::move(timer)]() mutable {
    const Status waited = WaitAll(wanted);
    timer = nullptr;
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(waited), done);
    // Back to TensorFlow's threads: the next op in the queue must not wait for this one's work.
    context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
        [this, context, done, tables] {
          const Status ran = Run(context, tables);
          OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(ran), done);
          done();
        });
  });
  return Status::Ok();
}

}  // namespace tfhybrid
