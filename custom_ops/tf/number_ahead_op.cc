// TfhybridNumberAhead: numbers the keys of a batch, and finds their rows, before its lookup.
#include <memory>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/keys_ahead.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfhybridNumberAhead")
    .Input("keys: N * int64")
    .Attr("collection: int >= 1")
    .Attr("batches: int >= 1")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* /*context*/) { return absl::OkStatus(); })
    .Doc(R"doc(
Numbers the keys of a batch, and finds their rows, for the lookup that has the same keys. Does
nothing before the first lookup of the collection that trains.

keys: One tensor of any shape per feature, as that lookup gets them.
collection: The number that the lookup names.
batches: How many batches are kept at most. The oldest is dropped.
)doc");

class NumberAheadOp : public tensorflow::OpKernel {
 public:
  explicit NumberAheadOp(OpKernelConstruction* context) : OpKernel(context) {
    int64_t collection = 0;
    OP_REQUIRES_OK(context, context->GetAttr("collection", &collection));
    OP_REQUIRES_OK(context, context->GetAttr("batches", &batches_));
    ahead_ = KeysAhead::Of(collection);
  }

  void Compute(OpKernelContext* context) override {
    OpInputList keys;
    OP_REQUIRES_OK(context, context->input_list("keys", &keys));
    OP_REQUIRES_OK(context, ToTensorFlow(ahead_->Put(context, keys, batches_)));
  }

 private:
  int64_t batches_ = 0;
  std::shared_ptr<KeysAhead> ahead_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridNumberAhead").Device(tensorflow::DEVICE_CPU), NumberAheadOp);

}  // namespace
}  // namespace tfhybrid
