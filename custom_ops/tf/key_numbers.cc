#include "tf/key_numbers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

namespace {

constexpr int64_t kNumberCostNs = 10;

// Allocates an element of `tensors` and returns its values.
template <typename T>
Result<T*> Allocate(OpKernelContext* context, const TensorShape& shape,
                    std::vector<Tensor>* tensors) {
  tensors->emplace_back();
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(
      context->allocate_temp(tensorflow::DataTypeToEnum<T>::value, shape, &tensors->back())));
  return tensors->back().flat<T>().data();
}

}  // namespace

absl::Status KeyNumbers::Begin(tensorflow::OpKernelConstruction* context) {
  std::vector<std::string> tables, distinct;
  int features = 0, count = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("tables", &tables));
  TF_RETURN_IF_ERROR(context->GetAttr("N", &features));
  TF_RETURN_IF_ERROR(context->GetAttr("T", &count));
  for (const std::string& table : tables) {
    const auto known = std::find(distinct.begin(), distinct.end(), table);
    table_of_.push_back(static_cast<size_t>(known - distinct.begin()));
    if (known == distinct.end()) {
      distinct.push_back(table);
      features_.emplace_back();
    }
    features_[table_of_.back()].push_back(static_cast<int>(table_of_.size()) - 1);
  }
  if (tables.size() != static_cast<size_t>(features) ||
      distinct.size() != static_cast<size_t>(count)) {
    return absl::InvalidArgumentError("tables names the table of each feature, T different ones");
  }
  first_output_ = context->num_outputs() - features - count;
  return absl::OkStatus();
}

bool KeyNumbers::AreUsed(OpKernelContext* context) const {
  for (int output = first_output_; output < context->num_outputs(); ++output) {
    if (context->output_required(output)) return true;
  }
  return false;
}

Result<NumberedKeys> KeyNumbers::Make(OpKernelContext* context, const OpInputList& keys) {
  NumberedKeys made;
  std::vector<uint32_t*> to;
  for (int i = 0; i < keys.size(); ++i) {
    TFHYBRID_ASSIGN_OR_RETURN(
        int32_t* const numbers,
        Allocate<int32_t>(context, TensorShape({keys[i].NumElements()}), &made.number_tensors));
    to.push_back(reinterpret_cast<uint32_t*>(numbers));
    made.numbers.push_back(to.back());
  }
  for (const std::vector<int>& of_table : features_) {
    made.occurrences.push_back(0);
    for (const int feature : of_table) made.occurrences.back() += keys[feature].NumElements();
  }
  const std::vector<int64_t>& counts = made.occurrences;
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto tables = static_cast<int64_t>(features_.size());
  Scratch unique = TakeScratch();
  ThreadsOf(context)(tables, kNumberCostNs * (all / tables + 1), [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      unique[t].Reset(made.occurrences[t]);
      for (const int feature : features_[t]) {
        unique[t].Number(Int64sOf(keys[feature]), to[static_cast<size_t>(feature)]);
      }
    }
  });
  for (const UniqueKeys& of_table : unique) {
    const Span<const int64_t> found = of_table.keys();
    TFHYBRID_ASSIGN_OR_RETURN(
        int64_t* const distinct,
        Allocate<int64_t>(context, TensorShape({found.size()}), &made.distinct_tensors));
    std::copy(found.begin(), found.end(), distinct);
    made.distinct.push_back({distinct, found.size()});
  }
  made.rows.resize(made.distinct.size());
  const MutexLock guard(mutex_);
  idle_.push_back(std::move(unique));
  return made;
}

void KeyNumbers::Set(OpKernelContext* context, const OpInputList& keys,
                     const NumberedKeys& made) const {
  int output = first_output_;
  for (int i = 0; i < keys.size(); ++i) {
    Tensor shaped;
    TF_CHECK_OK(shaped.BitcastFrom(made.number_tensors[static_cast<size_t>(i)],
                                   tensorflow::DT_INT32, keys[i].shape()));
    context->set_output(output++, shaped);
  }
  for (const Tensor& distinct : made.distinct_tensors) context->set_output(output++, distinct);
}

KeyNumbers::Scratch KeyNumbers::TakeScratch() {
  const MutexLock guard(mutex_);
  if (idle_.empty()) return Scratch(features_.size());
  Scratch scratch = std::move(idle_.back());
  idle_.pop_back();
  return scratch;
}

void ShapesOfNumbers(InferenceContext* context, int features, int input, int output) {
  for (int i = 0; i < features; ++i) context->set_output(output + i, context->input(input + i));
  for (int i = output + features; i < context->num_outputs(); ++i) {
    context->set_output(i, context->Vector(InferenceContext::kUnknownDim));
  }
}

}  // namespace tfhybrid
