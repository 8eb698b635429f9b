// TfhybridLookup: embeddings of the keys of all features of a collection, in one op.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/util/phase_times.h"
#include "core/util/row_layout.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/feature_bags.h"
#include "tf/lookup_kernel.h"
#include "tf/side_by_side.h"

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

// One output per feature: the shape of its rows, and the dim.
absl::Status ShapesOfFeatures(InferenceContext* context, const std::vector<ShapeHandle>& rows,
                              const std::vector<int64_t>& dims) {
  for (size_t i = 0; i < rows.size(); ++i) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(context->Concatenate(rows[i], context->Vector(dims[i]), &shape));
    context->set_output(static_cast<int>(i), shape);
  }
  return absl::OkStatus();
}

// One output: the batch, and all features of a sample side by side.
absl::Status ShapeSideBySide(InferenceContext* context, const std::vector<ShapeHandle>& rows,
                             const std::vector<int64_t>& dims) {
  DimensionHandle batch = context->UnknownDim();
  DimensionHandle width = context->MakeDim(0);
  for (size_t i = 0; i < rows.size(); ++i) {
    ShapeHandle of_batch;
    TF_RETURN_IF_ERROR(context->WithRankAtLeast(rows[i], 1, &of_batch));
    TF_RETURN_IF_ERROR(context->Merge(batch, context->Dim(of_batch, 0), &batch));
    ShapeHandle sample;
    TF_RETURN_IF_ERROR(context->Subshape(of_batch, 1, &sample));
    DimensionHandle floats;
    TF_RETURN_IF_ERROR(context->Multiply(context->NumElements(sample), dims[i], &floats));
    TF_RETURN_IF_ERROR(context->Add(width, floats, &width));
  }
  context->set_output(0, context->Matrix(batch, width));
  return absl::OkStatus();
}

REGISTER_OP("TfhybridLookup")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .TFHYBRID_FEATURE_BAGS.Output("embeddings: M * float")
    .TFHYBRID_KEY_NUMBERS.TFHYBRID_LOOKUP.Attr("side_by_side: bool = false")
    .Attr("M: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      std::vector<int64_t> dims;
      bool side_by_side = false;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(context->GetAttr("side_by_side", &side_by_side));
      const auto features = static_cast<int>(dims.size());
      int embeddings = 0;
      TF_RETURN_IF_ERROR(context->GetAttr("M", &embeddings));
      if (context->num_inputs() < 2 * features || embeddings != (side_by_side ? 1 : features)) {
        return absl::InvalidArgumentError(
            "dims has one entry per feature, and M is "
            "their number, or 1 side by side");
      }
      ShapesOfNumbers(context, features, features, embeddings);
      std::vector<ShapeHandle> rows;
      TF_RETURN_IF_ERROR(RowShapes(context, features, features, &rows));
      return side_by_side ? ShapeSideBySide(context, rows, dims)
                          : ShapesOfFeatures(context, rows, dims);
    })
    .Doc(R"doc(
Reads embeddings from the host's shared tables. In training a key without a row reads its initial
value; outside of it, what its table says.

Waits, on a thread of its own, until the updates that this rank has taken part in are applied.
The gradient with respect to a proxy is an IndexedSlices of the table's distinct keys and the sums
of their gradients.

proxies: One resource per feature: the handle of its table's proxy variable. It carries the
  gradient and orders this op against updates.
keys: One tensor of any shape per feature. Every int64 is legal.
splits: Of each feature with a combiner: bag b has keys splits[b] to splits[b + 1] - 1.
weights: Of each weighted feature with a combiner: one per key.
embeddings: keys[i].shape + [dims[i]], or [bags, dims[i]]; or, side by side, one tensor
  [batch, width] that holds all embeddings of a sample, feature by feature.
numbers: Of each key, in the shape of the keys: which of its table's distinct keys it is. Made only
  if something takes them, as the gradient does; then each distinct key's row is found once.
distinct: The distinct keys of each table, in order of first occurrence, feature by feature.
tables: The table of each feature; features may share one.
dims: The dim of each feature's table.
combiners: Of each feature: "sum", "mean", "sqrtn", or "" for one embedding per key.
weighted: Of each feature.
reading: Whether the model trains. "by_gradient": it does if something takes the numbers, and in
  eager mode.
collection: The number of the layer that looks up, by which TfhybridNumberAhead finds it; 0: none.
)doc");

class LookupOp : public LookupKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : LookupKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("side_by_side", &side_by_side_));
    OP_REQUIRES_OK(context, ToTensorFlow(feature_bags_.Begin(context)));
  }

 private:
  // Where a feature's rows go.
  struct Output {
    float* data;
    RowLayout layout;
  };

  Status Fetch(OpKernelContext* context, TablesInUse* in_use) override {
    const PhaseTimer timer(Phase::kFetch);
    OpInputList keys;
    TF_CHECK_OK(context->input_list("keys", &keys));
    TFHYBRID_ASSIGN_OR_RETURN(in_use->numbered, NumberIfUsed(context, *in_use, keys));
    std::vector<FeatureRead> features;
    const bool key_handles = in_use->engine->batches().uses_key_handles();
    const bool outside = IsOutside(context);
    for (int i = 0; i < keys.size(); ++i) {
      const auto feature = static_cast<size_t>(i);
      const std::shared_ptr<OpenTable>& table = in_use->tables[feature];
      features.push_back({table, in_use->engine->tables().AllocationOf(table->reader->name()),
                          Int64sOf(keys[i]), key_handles, outside});
      if (in_use->numbered == nullptr) continue;
      features.back().numbers = in_use->numbered->numbers[feature];
      features.back().distinct = in_use->numbered->distinct[numbers().table_of()[feature]];
    }
    TFHYBRID_ASSIGN_OR_RETURN(in_use->fetched,
                              in_use->engine->owners().Fetch(features, ThreadsOf(context)));
    return Status::Ok();
  }

  Status Run(OpKernelContext* context, const TablesInUse& in_use) override {
    const PhaseTimer timer(Phase::kLookup);
    OpInputList keys;
    TF_CHECK_OK(context->input_list("keys", &keys));
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<Bags> bags, feature_bags_.Read(context, keys));
    std::vector<Output> outputs;
    TFHYBRID_RETURN_IF_ERROR(side_by_side_ ? AllocateOne(context, keys, bags, &outputs)
                                           : AllocateEach(context, keys, bags, &outputs));
    TFHYBRID_ASSIGN_OR_RETURN(const KeysByTable by_table, Find(context, in_use, keys));
    const bool outside = IsOutside(context);
    std::vector<int64_t> starts = {0};  // of each feature, in rows of the output
    int64_t key_count = 0;
    for (int i = 0; i < keys.size(); ++i) {
      starts.push_back(starts.back() + RowsOf(keys[i], bags[static_cast<size_t>(i)]));
      key_count += keys[i].NumElements();
    }
    const int64_t cost = kLookupCostNs * (key_count / std::max<int64_t>(starts.back(), 1) + 1);
    return RunEachPart(
        ThreadsOf(context), starts, cost, [&](size_t i, int64_t first, int64_t last) {
          const RowCursor<float> out(outputs[i].data, outputs[i].layout, first);
          const LookupKeys all = KeysOf(by_table, i, Int64sOf(keys[static_cast<int>(i)]));
          const UnseenKeys unseen = in_use.tables[i]->Unseen(outside);
          return LookupPart(in_use, i, all, bags[i], first, last, out, unseen);
        });
  }

  // Null where nothing takes the numbers.
  Result<std::shared_ptr<const NumberedKeys>> NumberIfUsed(OpKernelContext* context,
                                                           const TablesInUse& in_use,
                                                           const OpInputList& keys) {
    if (!numbers().AreUsed(context)) return std::shared_ptr<const NumberedKeys>();
    return Number(context, in_use.tables, keys);
  }

  // The keys of a lookup: where they are numbered, with the rows of the distinct keys of each table
  // whose keys repeat.
  struct KeysByTable {
    std::shared_ptr<const NumberedKeys> numbered;
    std::vector<FoundRows> rows;
  };

  Result<KeysByTable> Find(OpKernelContext* context, const TablesInUse& in_use,
                           const OpInputList& keys) {
    KeysByTable by_table = {in_use.numbered, {}};
    if (by_table.numbered == nullptr) {
      TFHYBRID_ASSIGN_OR_RETURN(by_table.numbered, NumberIfUsed(context, in_use, keys));
    }
    if (by_table.numbered == nullptr) return by_table;
    TFHYBRID_ASSIGN_OR_RETURN(
        by_table.rows, FindRows(context, in_use.tables, by_table.numbered, [&](size_t table) {
          return !IsFetched(in_use, numbers().first_feature(table));
        }));
    return by_table;
  }

  LookupKeys KeysOf(const KeysByTable& by_table, size_t feature, Span<const int64_t> keys) const {
    if (by_table.numbered == nullptr) return keys;
    const FoundRows& rows = by_table.rows[numbers().table_of()[feature]];
    if (rows.mapped == nullptr) return keys;
    return {keys, by_table.numbered->numbers[feature], &rows};
  }

  static bool IsFetched(const TablesInUse& in_use, size_t feature) {
    return in_use.fetched != nullptr && in_use.fetched->Has(feature);
  }

  // Rows [first, last) of a feature's output.
  static Status LookupPart(const TablesInUse& in_use, size_t feature, const LookupKeys& keys,
                           const Bags& bags, int64_t first, int64_t last, RowCursor<float> out,
                           const UnseenKeys& unseen) {
    const bool combines = bags.combiner != Combiner::kNone;
    if (!IsFetched(in_use, feature)) {
      TableReader* const reader = in_use.tables[feature]->reader.get();
      return combines ? reader->LookupBags(keys, bags, first, last, out, unseen)
                      : reader->Lookup(keys.subspan(first, last - first), out, unseen);
    }
    if (combines) {
      in_use.fetched->LookupBags(feature, bags, first, last, out);
    } else {
      in_use.fetched->Lookup(feature, first, last, out);
    }
    return Status::Ok();
  }

  Status AllocateEach(OpKernelContext* context, const OpInputList& keys,
                      const std::vector<Bags>& bags, std::vector<Output>* outputs) const {
    OpOutputList embeddings;
    TF_CHECK_OK(context->output_list("embeddings", &embeddings));
    for (int i = 0; i < keys.size(); ++i) {
      const int64_t dim = dims()[static_cast<size_t>(i)];
      const Bags& of_feature = bags[static_cast<size_t>(i)];
      TensorShape shape = keys[i].shape();
      if (of_feature.combiner != Combiner::kNone) shape = TensorShape({of_feature.size()});
      shape.AddDim(dim);
      Tensor* output = nullptr;
      TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(embeddings.allocate(i, shape, &output)));
      outputs->push_back({output->flat<float>().data(), RowLayout::Array(dim)});
    }
    return Status::Ok();
  }

  Status AllocateOne(OpKernelContext* context, const OpInputList& keys,
                     const std::vector<Bags>& bags, std::vector<Output>* outputs) const {
    TFHYBRID_ASSIGN_OR_RETURN(const SideBySide layout, LayOutSideBySide(keys, bags, dims()));
    Tensor* output = nullptr;
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(
        context->allocate_output(0, TensorShape({layout.batch, layout.width}), &output)));
    float* data = output->flat<float>().data();
    for (size_t i = 0; i < layout.offsets.size(); ++i) {
      outputs->push_back({data + layout.offsets[i], layout.layouts[i]});
    }
    return Status::Ok();
  }

  bool side_by_side_ = false;
  FeatureBags feature_bags_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace tfhybrid
