// TfhybridSumGradients: the gradient of TfhybridLookup: what it means for each table.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/util/phase_times.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/feature_bags.h"
#include "tf/op_kernels.h"
#include "tf/side_by_side.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

constexpr int64_t kKeyCostNs = 40;
// The least number of a table's keys for another range. Who sums a range goes through all of them.
constexpr int64_t kRangeKeys = 16384;

REGISTER_OP("TfhybridSumGradients")
    .Input("numbers: N * int32")
    .Input("distinct: T * int64")
    .Input("gradients: M * float")
    .TFHYBRID_FEATURE_BAGS.Output("sums: T * float")
    .Attr("engine: int")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("table_of: list(int)")
    .Attr("side_by_side: bool = false")
    .Attr("N: int >= 1")
    .Attr("M: int >= 1")
    .Attr("T: int >= 1")
    .SetShapeFn([](InferenceContext* context) {
      std::vector<int64_t> dims, table_of;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(context->GetAttr("table_of", &table_of));
      const int tables = context->num_outputs();
      for (size_t i = 0; i < table_of.size() && i < dims.size(); ++i) {
        const auto table = static_cast<int>(table_of[i]);
        if (table < 0 || table >= tables) {
          return absl::InvalidArgumentError("table_of names tables from 0 to T - 1");
        }
        context->set_output(table, context->Matrix(InferenceContext::kUnknownDim, dims[i]));
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Sums a lookup's gradients by table and key.

numbers: Of the keys of the lookup, one tensor per feature.
distinct: The distinct keys of each table.
gradients: Of its outputs: one per feature, or one of all features side by side.
splits: As of the lookup, and so weights, combiners and weighted. No gradient flows to weights.
sums: [distinct, dim] the sum of each key's gradients, in order of occurrence.
tables: The names of the tables, T.
dims: The dim of each feature's table.
table_of: The table of each feature, 0 to T - 1.
)doc");

class SumGradientsOp : public tensorflow::OpKernel {
 public:
  explicit SumGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, tables_.Read(context));
    OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(context, context->GetAttr("table_of", &table_of_));
    OP_REQUIRES_OK(context, context->GetAttr("side_by_side", &side_by_side_));
    OP_REQUIRES_OK(context, ToTensorFlow(feature_bags_.Begin(context)));
    int features = 0, tables = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &features));
    OP_REQUIRES_OK(context, context->GetAttr("T", &tables));
    table_dims_.resize(static_cast<size_t>(tables));
    OP_REQUIRES(context, tables_.names().size() == table_dims_.size(),
                absl::InvalidArgumentError("tables has T names"));
    OP_REQUIRES(context,
                dims_.size() == static_cast<size_t>(features) && dims_.size() == table_of_.size(),
                absl::InvalidArgumentError("dims and table_of have one entry per feature"));
    for (size_t i = 0; i < dims_.size(); ++i) {
      OP_REQUIRES(context, table_of_[i] >= 0 && table_of_[i] < tables,
                  absl::InvalidArgumentError("table_of names tables from 0 to T - 1"));
      table_dims_[static_cast<size_t>(table_of_[i])] = dims_[i];
    }
  }

  void Compute(OpKernelContext* context) override {
    const PhaseTimer timer(Phase::kSum);
    OpInputList distinct;
    OP_REQUIRES_OK(context, context->input_list("distinct", &distinct));
    std::vector<Bags> bags;  // which the parts point to
    Parts parts(table_dims_.size());
    OP_REQUIRES_OK(context, ToTensorFlow(Collect(context, &bags, &parts)));
    Count(distinct, parts);
    OpOutputList sums;
    OP_REQUIRES_OK(context, context->output_list("sums", &sums));
    std::vector<float*> outputs;
    std::vector<RowRange> ranges;
    int64_t keys = 0;
    for (size_t t = 0; t < parts.size(); ++t) {
      const int64_t rows = distinct[static_cast<int>(t)].NumElements();
      Tensor* sum = nullptr;
      OP_REQUIRES_OK(context,
                     sums.allocate(static_cast<int>(t), TensorShape({rows, table_dims_[t]}), &sum));
      outputs.push_back(sum->flat<float>().data());
      int64_t of_table = 0;
      for (const NumberedGradients& part : parts[t]) of_table += part.numbers.size();
      Divide(t, rows, std::min(ThreadCount(context), 1 + of_table / kRangeKeys), &ranges);
      keys += of_table;
    }
    const auto count = static_cast<int64_t>(ranges.size());
    std::atomic<bool> in_order{true};
    ThreadsOf(context)(count, kKeyCostNs * (keys / count + 1), [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const auto& [t, first, last] = ranges[i];
        if (!SumGradients(parts[t], first, last, table_dims_[t], outputs[t])) in_order = false;
      }
    });
    OP_REQUIRES(context, in_order,
                absl::InvalidArgumentError("numbers are those of the distinct keys, in order of "
                                           "first occurrence. Received: others"));
  }

 private:
  using Parts = std::vector<std::vector<NumberedGradients>>;  // of each table
  // Some of a table's distinct keys, summed by one thread.
  struct RowRange {
    size_t table;
    int64_t begin, end;
  };

  static void Divide(size_t table, int64_t rows, int64_t count, std::vector<RowRange>* ranges) {
    for (int64_t i = 0; i < count; ++i) {
      ranges->push_back({table, rows * i / count, rows * (i + 1) / count});
    }
  }

  // For the tables' statistics.
  void Count(const OpInputList& distinct, const Parts& parts) {
    const Result<TablesInUse> in_use = tables_.Get(table_dims_);
    for (size_t t = 0; in_use.ok() && t < parts.size(); ++t) {
      OpenTable* const table = in_use.value().tables[t].get();
      for (const NumberedGradients& part : parts[t]) table->keys += part.numbers.size();
      table->distinct_keys += distinct[static_cast<int>(t)].NumElements();
    }
  }

  Status Collect(OpKernelContext* context, std::vector<Bags>* bags, Parts* parts) const {
    OpInputList numbers, gradients;
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("numbers", &numbers)));
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("gradients", &gradients)));
    TFHYBRID_ASSIGN_OR_RETURN(*bags, feature_bags_.Read(context, numbers));
    SideBySide layout;
    if (side_by_side_) {
      TFHYBRID_ASSIGN_OR_RETURN(layout, LayOutSideBySide(numbers, *bags, dims_));
    }
    for (int i = 0; i < numbers.size(); ++i) {
      const auto feature = static_cast<size_t>(i);
      const Tensor& gradient = gradients[side_by_side_ ? 0 : i];
      const Bags& of_feature = (*bags)[feature];
      const int64_t wanted = side_by_side_ ? layout.batch * layout.width
                                           : RowsOf(numbers[i], of_feature) * dims_[feature];
      if (gradient.NumElements() != wanted) {
        return Status::Error(StatusCode::kInvalidArgument, "The gradient of feature ", i, " has ",
                             wanted, " floats. Received: ", gradient.shape().DebugString());
      }
      const auto* of_keys = reinterpret_cast<const uint32_t*>(numbers[i].flat<int32_t>().data());
      NumberedGradients part = {{of_keys, numbers[i].NumElements()},
                                gradient.flat<float>().data(),
                                RowLayout::Array(dims_[feature])};
      if (side_by_side_) {
        part.gradients += layout.offsets[feature];
        part.layout = layout.layouts[feature];
      }
      if (of_feature.combiner != Combiner::kNone) part.bags = &of_feature;
      (*parts)[static_cast<size_t>(table_of_[feature])].push_back(part);
    }
    return Status::Ok();
  }

  NamedTables tables_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> table_of_;
  std::vector<int64_t> table_dims_;
  bool side_by_side_ = false;
  FeatureBags feature_bags_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridSumGradients").Device(tensorflow::DEVICE_CPU),
                        SumGradientsOp);

}  // namespace
}  // namespace tfhybrid
