#include "tf/exchange_kernel.h"

namespace tfhybrid {

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
