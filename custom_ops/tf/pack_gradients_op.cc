// TfhybridPackGradients: this rank's message for a step, as one tensor for an allgather.
#include <memory>
#include <string>
#include <vector>

#include "core/util/phase_times.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("TfhybridPackGradients")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Input("samples: int64")
    .Input("skip: bool")
    .Input("event_time: int64")
    .Input("failure: string")
    .Output("message: int64")
    .Attr("distinct: list(bool)")
    .Attr("N: int >= 1")
    .TFHYBRID_UPDATE.SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Sums the gradients of equal keys and packs distinct keys and sums of all tables into one message.

keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
samples: As of TfhybridPostGradients; so are `skip`, `event_time`, `failure` and
  `distinct`.
message: The message of this rank, 64-bit words (core/update/gradient_message.h); messages of all
  ranks laid end to end are the input of TfhybridApplyGathered.
)doc");

class PackGradientsOp : public tensorflow::OpKernel {
 public:
  explicit PackGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
    OP_REQUIRES_OK(context, ReadDistinct(context, &distinct_));
  }

  void Compute(OpKernelContext* context) override {
    const PhaseTimer timer(Phase::kPost);
    const Status packed = Pack(context);
    OP_REQUIRES_OK(context, ToTensorFlow(packed));
  }

 private:
  Status Pack(OpKernelContext* context) {
    TFHYBRID_ASSIGN_OR_RETURN(const Contribution contribution, ReadContribution(context));
    TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<KeyGradients> batch,
                              ReadBatch(context, in_use.update->schema(), distinct_));
    return in_use.update->host_update->Pack(
        batch, contribution,
        [&](int64_t words) { return AllocateOutput<int64_t>(context, 0, {words}); },
        ThreadsOf(context));
  }

  NamedUpdate update_;
  std::vector<bool> distinct_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPackGradients").Device(tensorflow::DEVICE_CPU),
                        PackGradientsOp);

}  // namespace
}  // namespace tfhybrid
