#include "tf/exchange_kernel.h"

namespace tfhybrid {

ExchangeKernel::ExchangeKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
  OP_REQUIRES_OK(context, update_.Read(context));
  OP_REQUIRES(context, update_.settings.BetweenLeaders(),
              tensorflow::errors::InvalidArgument("Leaders exchange where there are several"));
  tables_.SetNames(update_.settings.schema.tables);
}

void ExchangeKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Status started = Start(context, done);
  OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(started), done);
}

Status ExchangeKernel::Start(tensorflow::OpKernelContext* context, const DoneCallback& done) {
  TFHYBRID_ASSIGN_OR_RETURN(const TablesInUse in_use, tables_.Get(update_.settings.schema.dims));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<HostUpdate> update,
                            update_.OpenIn(in_use.engine));
  return in_use.engine->SubmitExchange(*update, [=](HostExchange* exchange) {
    const Status ran = Run(context, in_use, update, exchange);
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(ran), done);
    done();
  });
}

}  // namespace tfhybrid
