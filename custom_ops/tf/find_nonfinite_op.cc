// TfhybridFindNonfinite: the first among a rank's gradients that is not finite, or may not be when
// it is summed and squared.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
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
    .Attr("distinct: list(bool)")
    .Attr("limits: list(float)")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Finds the first gradient that is not finite, or too large.

keys: [n_i] keys of table i.
gradients: [n_i, dims[i]] their gradients.
found: "key K of table 'NAME' is ...", or empty if all can be used.
distinct: For each table whether it is known that no key comes twice.
limits: For each table what the sum of a key's gradients may be, as a magnitude.
)doc");

// Whether none is larger than the limit, or NaN. In lanes, so that it is done several at a time.
TFHYBRID_SIMD bool AllWithin(float limit, const float* values, int64_t count) {
  int32_t lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) {
      lanes[lane] |= std::fabs(values[i + lane]) <= limit ? 0 : 1;
    }
  }
  int32_t beyond = 0;
  for (; i < count; ++i) beyond |= std::fabs(values[i]) <= limit ? 0 : 1;
  for (const int32_t lane : lanes) beyond |= lane;
  return beyond == 0;
}

// REQUIRES: one of the gradients is beyond the limit.
std::string FirstBeyond(float limit, const std::string& table, const KeyGradients& of,
                        int64_t dim) {
  int64_t i = 0;
  while (i + 1 < of.keys.size() && AllWithin(limit, of.gradients + i * dim, dim)) ++i;
  const float* value = of.gradients + i * dim;
  while (std::fabs(*value) <= limit) ++value;
  std::ostringstream text(std::ios_base::out);
  text << "key " << of.keys[i] << " of table '" << table << "' is ";
  if (std::isfinite(*value)) {
    text << *value << ", too large for its sums and squares to be finite,";
  } else {
    text << "not finite";
  }
  return text.str();
}

class FindNonfiniteOp : public tensorflow::OpKernel {
 public:
  explicit FindNonfiniteOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadSchema(context, &schema_));
    OP_REQUIRES_OK(context, ReadDistinct(context, &distinct_));
    OP_REQUIRES_OK(context, context->GetAttr("limits", &limits_));
    OP_REQUIRES(context, limits_.size() == schema_.tables.size(),
                absl::InvalidArgumentError("limits has one entry per table"));
  }

  void Compute(OpKernelContext* context) override {
    const Result<std::vector<KeyGradients>> tables = ReadBatch(context, schema_, distinct_);
    OP_REQUIRES_OK(context, ToTensorFlow(tables.status()));
    Tensor* found = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &found));
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      const KeyGradients& table = tables.value()[t];
      const int64_t dim = schema_.dims[t];
      // A key that comes twice is summed before it leaves the rank.
      const auto max_terms = static_cast<float>(table.distinct ? 1 : table.keys.size());
      const float limit = limits_[t] / std::max(max_terms, 1.0f);
      if (AllWithin(limit, table.gradients, table.keys.size() * dim)) continue;
      found->scalar<tensorflow::tstring>()() = FirstBeyond(limit, schema_.tables[t], table, dim);
      return;
    }
  }

 private:
  MessageSchema schema_;
  std::vector<bool> distinct_;
  std::vector<float> limits_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridFindNonfinite").Device(tensorflow::DEVICE_CPU),
                        FindNonfiniteOp);

}  // namespace
}  // namespace tfhybrid
