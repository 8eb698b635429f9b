// TfhybridPackGradients: what this rank says about a step, as one tensor for an allgather.
#include <mutex>
#include <vector>

#include "core/sync/gradient_packer.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfhybridPackGradients")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Output("message: int64")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("distinct: list(bool)")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Sums the gradients of equal keys and packs distinct keys and sums of all tables into one message.

keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
distinct: For each table whether it is known that no key comes twice.
message: The message of this rank, 64-bit words (core/sync/gradient_message.h); messages of all
  ranks laid end to end are the input of TfhybridApplyGathered.
)doc");

class PackGradientsOp : public tensorflow::OpKernel {
 public:
  explicit PackGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadSchema(context, &schema_));
    OP_REQUIRES_OK(context, ReadDistinct(context, schema_.dims.size(), &distinct_));
  }

  void Compute(OpKernelContext* context) override {
    Result<std::vector<KeyGradients>> tables = ReadGradients(context, schema_, distinct_);
    OP_REQUIRES_OK(context, ToTensorFlow(tables.status()));
    const std::lock_guard<std::mutex> guard(mutex_);
    const ParallelFor parallel_for = ThreadsOf(context);
    const std::vector<int64_t>& counts = packer_.Number(tables.Take(), parallel_for);
    const int64_t words = MessageWords(schema_, counts);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({words}), &output));
    auto* message = reinterpret_cast<int64_t*>(output->flat<tensorflow::int64>().data());
    packer_.Fill(schema_, MessageBuilder(schema_, counts, Span<int64_t>(message, words)),
                 parallel_for);
  }

 private:
  MessageSchema schema_;
  std::vector<bool> distinct_;
  std::mutex mutex_;
  GradientPacker packer_;  // scratch, guarded by mutex_
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPackGradients").Device(tensorflow::DEVICE_CPU),
                        PackGradientsOp);

}  // namespace
}  // namespace tfhybrid
