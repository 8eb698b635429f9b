// TfhybridKeepGradients: the gradients of a micro-batch, kept until this rank posts its next
// message.
#include <memory>
#include <vector>

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

REGISTER_OP("TfhybridKeepGradients")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Attr("N: int >= 1")
    .TFHYBRID_UPDATE.SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Keeps the gradients of a micro-batch; those of equal keys are summed when the rank posts or packs.

proxies: One resource per table, the handle of its proxy variable.
keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
)doc");

class KeepGradientsOp : public tensorflow::OpKernel {
 public:
  explicit KeepGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
  }

  void Compute(OpKernelContext* context) override {
    const Status kept = Keep(context);
    OP_REQUIRES_OK(context, ToTensorFlow(kept));
  }

 private:
  Status Keep(OpKernelContext* context) {
    TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
    const MessageSchema& schema = in_use.update->schema();
    TFHYBRID_ASSIGN_OR_RETURN(
        const std::vector<KeyGradients> gradients,
        ReadBatch(context, schema, std::vector<bool>(schema.tables.size(), false)));
    in_use.update->host_update->Keep(gradients);
    return Status::Ok();
  }

  NamedUpdate update_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridKeepGradients").Device(tensorflow::DEVICE_CPU),
                        KeepGradientsOp);

}  // namespace
}  // namespace tfhybrid
