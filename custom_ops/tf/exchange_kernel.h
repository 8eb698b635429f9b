// ExchangeKernel: one part of an update that hosts exchange, on the leader of a host.
#ifndef TFHYBRID_TF_EXCHANGE_KERNEL_H_
#define TFHYBRID_TF_EXCHANGE_KERNEL_H_

#include <memory>

#include "core/update/host_update.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/bridge.h"
#include "tf/named_update.h"

namespace tfhybrid {

// Attributes: TFHYBRID_UPDATE. Runs on the engine's applying thread, after what that was
// given before, and holds no thread of TensorFlow's meanwhile.
class ExchangeKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ExchangeKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  virtual Status Run(tensorflow::OpKernelContext* context, Engine* engine,
                     const UpdateInUse& update) = 0;

 private:
  // Either leaves the op to the applying thread, or returns what is wrong.
  Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done);

  NamedUpdate update_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_EXCHANGE_KERNEL_H_
