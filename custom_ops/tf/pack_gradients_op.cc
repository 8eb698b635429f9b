// TfhybridPackGradients: what this rank says about a step, as one tensor.
#include <memory>
#include <utility>
#include <vector>

#include "core/compute/gradient_merger.h"
#include "core/sync/gradient_message.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// One table's deduplication is never small enough to share a piece with another.
constexpr int64_t kPackCostNs = 50000;

REGISTER_OP("TfhybridPackGradients")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Output("message: int64")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("N: int >= 1")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Sums the gradients of equal keys and packs distinct keys and sums of all tables into one message.

keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
message: The message of this rank, 64-bit words (core/sync/gradient_message.h); messages of all
  ranks laid end to end are the input of TfhybridUpdate.
)doc");

class PackGradientsOp : public tensorflow::OpKernel {
 public:
  explicit PackGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tables", &schema_.tables));
    OP_REQUIRES_OK(context, context->GetAttr("dims", &schema_.dims));
    int tables = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &tables));
    OP_REQUIRES(context,
                schema_.tables.size() == static_cast<size_t>(tables) &&
                    schema_.dims.size() == static_cast<size_t>(tables),
                tensorflow::errors::InvalidArgument("tables and dims have one entry per table"));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList keys, gradients;
    OP_REQUIRES_OK(context, context->input_list("keys", &keys));
    OP_REQUIRES_OK(context, context->input_list("gradients", &gradients));
    for (int i = 0; i < keys.size(); ++i) OP_REQUIRES_OK(context, Check(i, keys[i], gradients[i]));

    const tensorflow::mutex_lock guard(mutex_);
    mergers_.resize(static_cast<size_t>(keys.size()));
    const ParallelFor parallel_for = ThreadsOf(context);
    parallel_for(keys.size(), kPackCostNs, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Tensor& table_keys = keys[static_cast<int>(i)];
        GradientMerger& merger = mergers_[static_cast<size_t>(i)];
        merger.Reset(schema_.dims[static_cast<size_t>(i)], table_keys.NumElements());
        merger.Add(Span<const int64_t>(reinterpret_cast<const int64_t*>(
                                           table_keys.flat<tensorflow::int64>().data()),
                                       table_keys.NumElements()),
                   gradients[static_cast<int>(i)].flat<float>().data(), nullptr);
      }
    });
    OP_REQUIRES_OK(context, Write(context));
  }

 private:
  tensorflow::Status Check(int table, const Tensor& keys, const Tensor& gradients) const {
    const int64_t dim = schema_.dims[static_cast<size_t>(table)];
    const TensorShape wanted({keys.NumElements(), dim});
    if (keys.dims() == 1 && gradients.shape() == wanted) return tensorflow::OkStatus();
    return tensorflow::errors::InvalidArgument(
        "Gradients of table '", schema_.tables[static_cast<size_t>(table)], "' have shape ",
        "[keys, ", dim, "]. Received: keys ", keys.shape().DebugString(), ", gradients ",
        gradients.shape().DebugString());
  }

  tensorflow::Status Write(OpKernelContext* context) {
    std::vector<int64_t> counts;
    for (const GradientMerger& merger : mergers_) counts.push_back(merger.keys().size());
    const Span<const int64_t> key_counts(counts.data(), static_cast<int64_t>(counts.size()));
    Tensor* message = nullptr;
    TF_RETURN_IF_ERROR(
        context->allocate_output(0, TensorShape({MessageWords(schema_, key_counts)}), &message));
    auto* words = reinterpret_cast<int64_t*>(message->flat<tensorflow::int64>().data());
    const MessageBuilder builder(schema_, key_counts, Span<int64_t>(words, message->NumElements()));
    for (size_t i = 0; i < mergers_.size(); ++i) {
      const Span<const int64_t> keys = mergers_[i].keys();
      std::copy(keys.begin(), keys.end(), builder.keys(static_cast<int64_t>(i)));
      std::copy_n(mergers_[i].sums(), keys.size() * schema_.dims[i],
                  builder.gradients(static_cast<int64_t>(i)));
    }
    return tensorflow::OkStatus();
  }

  MessageSchema schema_;
  tensorflow::mutex mutex_;
  std::vector<GradientMerger> mergers_;  // scratch, guarded by mutex_
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPackGradients").Device(tensorflow::DEVICE_CPU),
                        PackGradientsOp);

}  // namespace
}  // namespace tfhybrid
