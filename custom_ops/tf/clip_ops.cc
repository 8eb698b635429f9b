// TfhybridSquareSum and TfhybridClipFactor: exchange between the dense half of a step and the
// tables, for clipping by their common norm.
#include "core/compute/row_update.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status ScalarShape(tensorflow::shape_inference::InferenceContext* context) {
  context->set_output(0, context->Scalar());
  return absl::OkStatus();
}

REGISTER_OP("TfhybridSquareSum")
    .Input("gradients: N * float")
    .Output("squares: double")
    .Attr("N: int >= 0")
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Adds up the squares of tensors; the same bits on all ranks, however many threads they have.

gradients: Of any shapes.
squares: The sum over all of them.
)doc");

REGISTER_OP("TfhybridClipFactor")
    .Input("proxies: N * resource")
    .Output("factor: float")
    .Attr("N: int >= 1")
    .TFHYBRID_UPDATE.SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Waits for the update that this rank has posted last, and returns what clipping by global norm
multiplied its gradients by.

proxies: One resource per table of the update, the handle of its proxy variable.
factor: At most 1.
)doc");

class SquareSumOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    OpInputList gradients;
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    Tensor* squares = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &squares));
    double sum = 0.0;
    for (const Tensor& gradient : gradients) {
      sum += Squares(gradient.flat<float>().data(), gradient.NumElements());
    }
    squares->scalar<double>()() = sum;
  }
};

class ClipFactorOp : public UpdateKernel {
 public:
  using UpdateKernel::UpdateKernel;

 private:
  Status Run(OpKernelContext* context, const std::shared_ptr<Engine>& /*engine*/,
             const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(const Span<float> factor, AllocateOutput<float>(context, 0));
    factor[0] = update->tables.front()->reader->clip_factor();
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridSquareSum").Device(tensorflow::DEVICE_CPU), SquareSumOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridClipFactor").Device(tensorflow::DEVICE_CPU), ClipFactorOp);

}  // namespace
}  // namespace tfhybrid
