// TfhybridFindNonfinite: the first NaN or Inf among a rank's gradients.
#include <cstdint>
#include <string>
#include <vector>

#include "core/util/simd.h"
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

REGISTER_OP("TfhybridFindNonfinite")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Output("found: string")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Finds the first gradient that is not finite.

keys: [n_i] keys of table i.
gradients: [n_i, dims[i]] their gradients.
found: "key K of table 'NAME'", or empty if all are finite.
)doc");

// Whether all are finite: 0 times anything else is NaN. In lanes, so that it is done several at a
// time.
TFHYBRID_SIMD bool AllFinite(const float* values, int64_t count) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += values[i + lane] * 0.0f;
  }
  float sum = 0.0f;
  for (; i < count; ++i) sum += values[i] * 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum == 0.0f;
}

// REQUIRES: one of the gradients is not finite.
int64_t FirstKey(const KeyGradients& table, int64_t dim) {
  int64_t i = 0;
  while (i + 1 < table.keys.size() && AllFinite(table.gradients + i * dim, dim)) ++i;
  return table.keys[i];
}

class FindNonfiniteOp : public tensorflow::OpKernel {
 public:
  explicit FindNonfiniteOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadSchema(context, &schema_));
  }

  void Compute(OpKernelContext* context) override {
    const Result<std::vector<KeyGradients>> tables =
        ReadBatch(context, schema_, std::vector<bool>(schema_.tables.size(), false));
    OP_REQUIRES_OK(context, ToTensorFlow(tables.status()));
    Tensor* found = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &found));
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      const KeyGradients& table = tables.value()[t];
      if (AllFinite(table.gradients, table.keys.size() * schema_.dims[t])) continue;
      found->scalar<tensorflow::tstring>()() = "key " +
                                               std::to_string(FirstKey(table, schema_.dims[t])) +
                                               " of table '" + schema_.tables[t] + "'";
      return;
    }
  }

 private:
  MessageSchema schema_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridFindNonfinite").Device(tensorflow::DEVICE_CPU),
                        FindNonfiniteOp);

}  // namespace
}  // namespace tfhybrid
