// TfhybridLookup: embeddings of the keys of all features of a collection, in one op.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/util/row_layout.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/side_by_side.h"
#include "tf/waiting_kernel.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Probing and copying one row, in nanoseconds.
constexpr int64_t kLookupCostNs = 60;

// One output per feature: its keys' shape and the dim.
tensorflow::Status ShapesOfFeatures(InferenceContext* context,
                                    const std::vector<tensorflow::int64>& dims) {
  const auto features = static_cast<int>(dims.size());
  for (int i = 0; i < features; ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(context->Concatenate(context->input(features + i),
                                            context->Vector(dims[static_cast<size_t>(i)]), &shape));
    context->set_output(i, shape);
  }
  return tensorflow::OkStatus();
}

// One output: the batch, and all features of a sample side by side.
tensorflow::Status ShapeSideBySide(InferenceContext* context,
                                   const std::vector<tensorflow::int64>& dims) {
  const auto features = static_cast<int>(dims.size());
  DimensionHandle batch = context->UnknownDim();
  DimensionHandle width = context->MakeDim(0);
  for (int i = 0; i < features; ++i) {
    ShapeHandle keys;
    TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(features + i), 1, &keys));
    TF_RETURN_IF_ERROR(context->Merge(batch, context->Dim(keys, 0), &batch));
    ShapeHandle sample;
    TF_RETURN_IF_ERROR(context->Subshape(keys, 1, &sample));
    DimensionHandle floats;
    TF_RETURN_IF_ERROR(
        context->Multiply(context->NumElements(sample), dims[static_cast<size_t>(i)], &floats));
    TF_RETURN_IF_ERROR(context->Add(width, floats, &width));
  }
  context->set_output(0, context->Matrix(batch, width));
  return tensorflow::OkStatus();
}

REGISTER_OP("TfhybridLookup")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Output("embeddings: M * float")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("side_by_side: bool = false")
    .Attr("N: int >= 1")
    .Attr("M: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      std::vector<tensorflow::int64> dims;
      bool side_by_side = false;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(context->GetAttr("side_by_side", &side_by_side));
      if (context->num_inputs() != 2 * static_cast<int>(dims.size()) ||
          context->num_outputs() != (side_by_side ? 1 : static_cast<int>(dims.size()))) {
        return tensorflow::errors::InvalidArgument("dims has one entry per feature, and M is ",
                                                   "their number, or 1 side by side");
      }
      return side_by_side ? ShapeSideBySide(context, dims) : ShapesOfFeatures(context, dims);
    })
    .Doc(R"doc(
Reads embeddings from the host's shared tables; a key without a row reads its initial value.

Waits, on a thread of its own, until the updates that this rank has taken part in are applied.
The gradient with respect to a proxy is an IndexedSlices of the table's distinct keys and the sums
of their gradients.

proxies: One resource per feature: the handle of its table's proxy variable. It carries the
  gradient and orders this op against updates.
keys: One tensor of any shape per feature. Every int64 is legal.
embeddings: keys[i].shape + [dims[i]]; or, side by side, one tensor [batch, width] that holds all
  embeddings of a sample, feature by feature.
tables: The table of each feature; features may share one.
dims: The dim of each feature's table.
)doc");

class LookupOp : public WaitingKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : WaitingKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("side_by_side", &side_by_side_));
  }

 private:
  // Where a feature's rows go.
  struct Output {
    float* data;
    RowLayout layout;
  };

  Status Run(OpKernelContext* context, const OpenTables& tables) override {
    OpInputList keys;
    TF_CHECK_OK(context->input_list("keys", &keys));
    std::vector<Output> outputs;
    TFHYBRID_RETURN_IF_ERROR(side_by_side_ ? AllocateOne(context, keys, &outputs)
                                           : AllocateEach(context, keys, &outputs));
    std::vector<int64_t> starts = {0};
    for (int i = 0; i < keys.size(); ++i) starts.push_back(starts.back() + keys[i].NumElements());
    std::mutex mutex;
    Status failure;  // guarded by mutex
    ThreadsOf(context)(starts.back(), kLookupCostNs, [&](int64_t begin, int64_t end) {
      ForEachPart(starts, begin, end, [&](size_t i, int64_t first, int64_t last) {
        const Status looked_up = tables[i]->reader->Lookup(
            KeysOf(keys[static_cast<int>(i)]).subspan(first, last - first),
            RowCursor<float>(outputs[i].data, outputs[i].layout, first));
        if (looked_up.ok()) return;
        const std::lock_guard<std::mutex> guard(mutex);
        failure = looked_up;
      });
    });
    return failure;
  }

  Status AllocateEach(OpKernelContext* context, const OpInputList& keys,
                      std::vector<Output>* outputs) const {
    OpOutputList embeddings;
    TF_CHECK_OK(context->output_list("embeddings", &embeddings));
    for (int i = 0; i < keys.size(); ++i) {
      const int64_t dim = dims()[static_cast<size_t>(i)];
      TensorShape shape = keys[i].shape();
      shape.AddDim(dim);
      Tensor* output = nullptr;
      TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(embeddings.allocate(i, shape, &output)));
      outputs->push_back({output->flat<float>().data(), RowLayout::Array(dim)});
    }
    return Status::Ok();
  }

  Status AllocateOne(OpKernelContext* context, const OpInputList& keys,
                     std::vector<Output>* outputs) const {
    TFHYBRID_ASSIGN_OR_RETURN(const SideBySide places, PlaceSideBySide(keys, dims()));
    Tensor* output = nullptr;
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(
        context->allocate_output(0, TensorShape({places.batch, places.width}), &output)));
    float* data = output->flat<float>().data();
    for (size_t i = 0; i < places.offsets.size(); ++i) {
      outputs->push_back({data + places.offsets[i], places.layouts[i]});
    }
    return Status::Ok();
  }

  bool side_by_side_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace tfhybrid
