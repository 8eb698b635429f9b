// TfhybridNumberKeys: numbers the keys of a lookup whose own op did not.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/key_numbers.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfhybridNumberKeys")
    .Input("keys: N * int64")
    .TFHYBRID_KEY_NUMBERS
    .SetShapeFn([](InferenceContext* context) {
      ShapesOfNumbers(context, context->num_inputs(), 0, 0);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Numbers the keys of each table in order of first occurrence, feature by feature.

keys: One tensor of any shape per feature. Every int64 is legal.
numbers: Of each key, in the shape of the keys.
distinct: The distinct keys of each table, tables in order of first mention.
tables: The table of each feature; features may share one.
)doc");

class NumberKeysOp : public tensorflow::OpKernel {
 public:
  explicit NumberKeysOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, numbers_.Begin(context));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList keys;
    OP_REQUIRES_OK(context, context->input_list("keys", &keys));
    const Result<NumberedKeys> made = numbers_.Make(context, keys);
    OP_REQUIRES_OK(context, ToTensorFlow(made.status()));
    numbers_.Set(context, keys, made.value());
  }

 private:
  KeyNumbers numbers_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridNumberKeys").Device(tensorflow::DEVICE_CPU), NumberKeysOp);

}  // namespace
}  // namespace tfhybrid
