// TfhybridDistinctRows: the host's part of a lookup that gathers embeddings on a device.
#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "core/util/phase_times.h"
#include "core/util/row_layout.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/lookup_kernel.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

// Adding one number to another, in nanoseconds.
constexpr int64_t kPositionCostNs = 1;

// The distinct ones, in order of first mention.
std::vector<int64_t> Distinct(const std::vector<int64_t>& dims) {
  std::vector<int64_t> found;
  for (const int64_t dim : dims) {
    if (std::find(found.begin(), found.end(), dim) == found.end()) found.push_back(dim);
  }
  return found;
}

REGISTER_OP("TfhybridDistinctRows")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Output("rows: D * float")
    .Output("positions: D * int32")
    .TFHYBRID_KEY_NUMBERS.TFHYBRID_LOOKUP.Attr("by_sample: bool = false")
    .Attr("D: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      std::vector<int64_t> dims;
      int features = 0, count = 0;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(context->GetAttr("N", &features));
      TF_RETURN_IF_ERROR(context->GetAttr("D", &count));
      const std::vector<int64_t> distinct = Distinct(dims);
      if (distinct.size() != static_cast<size_t>(count)) {
        return absl::InvalidArgumentError("D is the number of different dims");
      }
      for (int i = 0; i < count; ++i) {
        const int64_t dim = distinct[static_cast<size_t>(i)];
        context->set_output(i, context->Matrix(InferenceContext::kUnknownDim, dim));
        context->set_output(count + i, context->Vector(InferenceContext::kUnknownDim));
      }
      ShapesOfNumbers(context, features, features, 2 * count);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Reads the row of each distinct key once, as TfhybridLookup does, to be gathered elsewhere.

The outputs for the tables of one dim are one tensor each, so that they are copied at once.

proxies: One resource per feature: the handle of its table's proxy variable. It orders this op
  against updates.
keys: One tensor of any shape per feature. Every int64 is legal.
rows: For each different dim, in order of first mention: the rows of its tables, [rows, dim].
positions: For each different dim: of each key of its features, its row there, feature by feature;
  with by_sample sample by sample, and there feature by feature.
numbers: As in TfhybridLookup.
distinct: As in TfhybridLookup.
tables: The table of each feature; features may share one.
dims: The dim of each feature's table.
reading: As in TfhybridLookup. "by_gradient": the model trains if something takes the numbers or the
  distinct keys, and in eager mode.
collection: As in TfhybridLookup.
by_sample: The first axis of all keys is the batch.
)doc");

class DistinctRowsOp : public LookupKernel {
 public:
  explicit DistinctRowsOp(OpKernelConstruction* context) : LookupKernel(context) {
    distinct_dims_ = Distinct(dims());
    OP_REQUIRES_OK(context, context->GetAttr("by_sample", &by_sample_));
    OP_REQUIRES(context, context->num_outputs() > 2 * static_cast<int>(distinct_dims_.size()),
                absl::InvalidArgumentError("D is the number of different dims"));
  }

 private:
  // Where the rows of each table begin among those of its dim, and all rows of each dim.
  struct Layout {
    std::vector<int64_t> starts;  // by table
    std::vector<int64_t> rows;    // by dim
  };

  Status Fetch(OpKernelContext* context, TablesInUse* in_use) override {
    const PhaseTimer timer(Phase::kFetch);
    OpInputList keys;
    TF_CHECK_OK(context->input_list("keys", &keys));
    TFHYBRID_ASSIGN_OR_RETURN(in_use->numbered, Number(context, in_use->tables, keys));
    const std::vector<uint32_t> same = NumbersOfDistinct(*in_use->numbered);
    std::vector<FeatureRead> reads;
    for (size_t t = 0; t < in_use->numbered->distinct.size(); ++t) {
      const std::shared_ptr<OpenTable>& table = in_use->tables[numbers().first_feature(t)];
      const Span<const int64_t> distinct = in_use->numbered->distinct[t];
      reads.push_back({table, in_use->engine->tables().AllocationOf(table->reader->name()),
                       distinct, in_use->engine->batches().uses_key_handles(), IsOutside(context),
                       same.data(), distinct});
    }
    TFHYBRID_ASSIGN_OR_RETURN(in_use->fetched,
                              in_use->engine->owners().Fetch(reads, ThreadsOf(context)));
    return Status::Ok();
  }

  Status Run(OpKernelContext* context, const TablesInUse& in_use) override {
    const PhaseTimer timer(Phase::kLookup);
    OpInputList keys;
    TF_CHECK_OK(context->input_list("keys", &keys));
    std::shared_ptr<const NumberedKeys> numbered = in_use.numbered;
    if (numbered == nullptr) {
      TFHYBRID_ASSIGN_OR_RETURN(numbered, Number(context, in_use.tables, keys));
    }
    TFHYBRID_ASSIGN_OR_RETURN(const Layout layout, LayOut(*numbered));
    TFHYBRID_RETURN_IF_ERROR(WriteRows(context, in_use, numbered, layout));
    return WritePositions(context, keys, *numbered, layout);
  }

  static bool IsFetched(const TablesInUse& in_use, size_t table) {
    return in_use.fetched != nullptr && in_use.fetched->Has(table);
  }

  size_t DimOf(size_t feature) const {
    const auto found = std::find(distinct_dims_.begin(), distinct_dims_.end(), dims()[feature]);
    return static_cast<size_t>(found - distinct_dims_.begin());
  }

  // The numbers of the distinct keys of any table: 0, 1, 2 and so on.
  static std::vector<uint32_t> NumbersOfDistinct(const NumberedKeys& numbered) {
    int64_t most = 0;
    for (const Span<const int64_t> distinct : numbered.distinct) {
      most = std::max(most, distinct.size());
    }
    std::vector<uint32_t> same(static_cast<size_t>(most));
    std::iota(same.begin(), same.end(), 0);
    return same;
  }

  Result<Layout> LayOut(const NumberedKeys& numbered) const {
    Layout layout = {{}, std::vector<int64_t>(distinct_dims_.size())};
    for (size_t t = 0; t < numbered.distinct.size(); ++t) {
      int64_t& rows = layout.rows[DimOf(numbers().first_feature(t))];
      layout.starts.push_back(rows);
      rows += numbered.distinct[t].size();
    }
    for (const int64_t rows : layout.rows) {
      if (rows <= std::numeric_limits<int32_t>::max()) continue;
      return Status::Error(
          StatusCode::kInvalidArgument,
          "A lookup on a device reads at most 2^31 - 1 rows of one dim. Received: ", rows,
          " distinct keys");
    }
    return layout;
  }

  Status WriteRows(OpKernelContext* context, const TablesInUse& in_use,
                   const std::shared_ptr<const NumberedKeys>& numbered,
                   const Layout& layout) const {
    OpOutputList rows;
    TF_CHECK_OK(context->output_list("rows", &rows));
    std::vector<float*> of_dims;
    for (size_t d = 0; d < distinct_dims_.size(); ++d) {
      Tensor* output = nullptr;
      const TensorShape shape({layout.rows[d], distinct_dims_[d]});
      TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(rows.allocate(static_cast<int>(d), shape, &output)));
      of_dims.push_back(output->flat<float>().data());
    }
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<FoundRows> found,
                              FindRows(context, in_use.tables, numbered,
                                       [&](size_t table) { return !IsFetched(in_use, table); }));
    const std::vector<uint32_t> same = NumbersOfDistinct(*numbered);
    const bool outside = IsOutside(context);
    std::vector<int64_t> starts = {0};  // of each table, in rows of all
    for (const Span<const int64_t> distinct : numbered->distinct) {
      starts.push_back(starts.back() + distinct.size());
    }
    return RunEachPart(
        ThreadsOf(context), starts, kLookupCostNs, [&](size_t t, int64_t first, int64_t last) {
          const size_t feature = numbers().first_feature(t);
          const RowCursor<float> out(of_dims[DimOf(feature)], RowLayout::Array(dims()[feature]),
                                     layout.starts[t] + first);
          if (IsFetched(in_use, t)) {
            in_use.fetched->Lookup(t, first, last, out);
            return Status::Ok();
          }
          LookupKeys keys = numbered->distinct[t];
          if (found[t].mapped != nullptr) keys = {keys.keys, same.data(), &found[t]};
          const OpenTable& table = *in_use.tables[feature];
          return table.reader->Lookup(keys.subspan(first, last - first), out,
                                      table.Unseen(outside));
        });
  }

  // The keys of a feature in the positions of its dim: `begin`, and then the next key of the
  // sample, and the next sample after `stride`.
  struct Places {
    int64_t begin;
    int64_t of_sample;  // keys
    int64_t stride;
  };

  // Where the positions of each feature's keys go. Adds up the keys of each dim.
  Result<std::vector<Places>> Arrange(const OpInputList& keys, std::vector<int64_t>* counts) const {
    const int64_t samples = by_sample_ && keys[0].dims() > 0 ? keys[0].dim_size(0) : 1;
    std::vector<Places> places;
    std::vector<int64_t> of_samples(counts->size());  // keys of a sample
    for (int i = 0; i < keys.size(); ++i) {
      const Tensor& of_feature = keys[i];
      if (by_sample_ && (of_feature.dims() == 0 || of_feature.dim_size(0) != samples)) {
        return Status::Error(StatusCode::kInvalidArgument,
                             "Side by side, all features have keys of ", samples,
                             " samples. Received: ", of_feature.shape().DebugString());
      }
      int64_t& begin = of_samples[DimOf(static_cast<size_t>(i))];
      const int64_t of_sample = samples == 0 ? 0 : of_feature.NumElements() / samples;
      places.push_back({begin, of_sample, 0});
      begin += of_sample;
    }
    for (size_t i = 0; i < places.size(); ++i) places[i].stride = of_samples[DimOf(i)];
    for (size_t d = 0; d < counts->size(); ++d) (*counts)[d] = samples * of_samples[d];
    return places;
  }

  Status WritePositions(OpKernelContext* context, const OpInputList& keys,
                        const NumberedKeys& numbered, const Layout& layout) const {
    OpOutputList positions;
    TF_CHECK_OK(context->output_list("positions", &positions));
    std::vector<int64_t> counts(distinct_dims_.size());
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<Places> places, Arrange(keys, &counts));
    std::vector<int32_t*> of_dims;
    for (size_t d = 0; d < counts.size(); ++d) {
      Tensor* output = nullptr;
      TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(
          positions.allocate(static_cast<int>(d), TensorShape({counts[d]}), &output)));
      of_dims.push_back(output->flat<int32_t>().data());
    }
    const auto features = static_cast<int64_t>(places.size());
    const int64_t cost = kPositionCostNs *
                         (std::accumulate(counts.begin(), counts.end(), int64_t{0}) / features + 1);
    ThreadsOf(context)(features, cost, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const auto start = static_cast<int32_t>(layout.starts[numbers().table_of()[i]]);
        const Places& of = places[i];
        const uint32_t* number = numbered.numbers[i];
        const uint32_t* const last = number + keys[static_cast<int>(i)].NumElements();
        for (int32_t* to = of_dims[DimOf(i)] + of.begin; number != last; to += of.stride) {
          for (int64_t k = 0; k < of.of_sample; ++k)
            to[k] = start + static_cast<int32_t>(*number++);
        }
      }
    });
    return Status::Ok();
  }

  std::vector<int64_t> distinct_dims_;
  bool by_sample_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridDistinctRows").Device(tensorflow::DEVICE_CPU),
                        DistinctRowsOp);

}  // namespace
}  // namespace tfhybrid
