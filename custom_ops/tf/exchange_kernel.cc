#include "tf/exchange_kernel.h"

#include "tf/background.h"

namespace tfhybrid {

ExchangeKernel::ExchangeKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
  OP_REQUIRES_OK(context, update_.Read(context));
  OP_REQUIRES(context, update_.settings.BetweenLeaders(),
              tensorflow::errors::InvalidArgument("Leaders exchange where there are several"));
  tables_.SetNames(update_.settings.schema.tables);
}

void ExchangeKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  ApplyingThread().Submit([this, context, done] {
    const Status ran = RunOnTables(context);
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(ran), done);
    done();
  });
}

Status ExchangeKernel::RunOnTables(tensorflow::OpKernelContext* context) {
  TFHYBRID_ASSIGN_OR_RETURN(const OpenTables tables, tables_.Get(update_.settings.schema.dims));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<HostUpdate> update, update_.Open());
  if (update->exchange() == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "The leader of a host exchanges gradients with others, nobody else");
  }
  return Run(context, tables, update);
}

}  // namespace tfhybrid
