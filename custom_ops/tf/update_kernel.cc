#include "tf/update_kernel.h"

#include <utility>

#include "core/engine/engine_registry.h"
#include "tf/bridge.h"

namespace tfhybrid {

absl::Status NamedUpdate::Read(tensorflow::OpKernelConstruction* context) {
  TF_RETURN_IF_ERROR(context->GetAttr("engine", &engine_));
  return context->GetAttr("update", &update_);
}

Result<NamedUpdate::InUse> NamedUpdate::Get() const {
  TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, EngineOf(engine_));
  TFHYBRID_ASSIGN_OR_RETURN(UpdateInUse update, engine->Update(update_));
  return InUse{std::move(engine), std::move(update)};
}

void ExchangeKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Status started = Start(context, done);
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(started), done);
}

Status ExchangeKernel::Start(tensorflow::OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
  return in_use.engine->SubmitExchange(in_use.update, [=] {
    const Status ran = Run(context, in_use.engine.get(), in_use.update);
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(ran), done);
    done();
  });
}

}  // namespace tfhybrid
