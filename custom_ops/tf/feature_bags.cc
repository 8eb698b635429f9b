#include "tf/feature_bags.h"

#include <string>
#include <utility>

#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

Status FeatureBags::Begin(tensorflow::OpKernelConstruction* context) {
  std::vector<std::string> names;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->GetAttr("combiners", &names)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->GetAttr("weighted", &weighted_)));
  int features = 0, splits = 0, weights = 0;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->GetAttr("N", &features)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->GetAttr("S", &splits)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->GetAttr("W", &weights)));
  for (size_t i = 0; i < names.size(); ++i) {
    TFHYBRID_ASSIGN_OR_RETURN(const Combiner combiner, ParseCombiner(names[i]));
    combiners_.push_back(combiner);
    splits -= combiner != Combiner::kNone;
    weights -= i < weighted_.size() && weighted_[i] && combiner != Combiner::kNone;
  }
  const auto count = static_cast<size_t>(features);
  if (combiners_.size() == count && weighted_.size() == count && splits == 0 && weights == 0) {
    return Status::Ok();
  }
  return Status::Error(StatusCode::kInvalidArgument,
                       "combiners and weighted have one entry per feature, splits one tensor per ",
                       "feature with a combiner, weights one per weighted of these");
}

Result<std::vector<Bags>> FeatureBags::Read(tensorflow::OpKernelContext* context,
                                            const OpInputList& keys) const {
  OpInputList splits, weights;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("splits", &splits)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("weights", &weights)));
  std::vector<Bags> bags(combiners_.size());
  int next_splits = 0, next_weights = 0;
  for (size_t i = 0; i < bags.size(); ++i) {
    if (combiners_[i] == Combiner::kNone) continue;
    const int64_t count = keys[static_cast<int>(i)].NumElements();
    bags[i].combiner = combiners_[i];
    bags[i].splits = Int64sOf(splits[next_splits++]);
    TFHYBRID_RETURN_IF_ERROR(CheckBags(bags[i], count));
    if (!weighted_[i]) continue;
    const Tensor& of_keys = weights[next_weights++];
    if (of_keys.NumElements() != count) {
      return Status::Error(StatusCode::kInvalidArgument, "Feature ", i, " has ", count,
                           " keys, and one weight for each. Received: ", of_keys.NumElements(),
                           " weights");
    }
    bags[i].weights = of_keys.flat<float>().data();
  }
  return bags;
}

int64_t RowsOf(const Tensor& keys, const Bags& bags) {
  return bags.combiner == Combiner::kNone ? keys.NumElements() : bags.size();
}

absl::Status RowShapes(InferenceContext* context, int features, int first,
                       std::vector<ShapeHandle>* shapes) {
  std::vector<std::string> combiners;
  TF_RETURN_IF_ERROR(context->GetAttr("combiners", &combiners));
  if (combiners.size() != static_cast<size_t>(features)) {
    return absl::InvalidArgumentError("combiners has one entry per feature");
  }
  int splits = first + features;
  for (int i = 0; i < features; ++i) {
    if (combiners[static_cast<size_t>(i)].empty()) {
      shapes->push_back(context->input(first + i));
      continue;
    }
    if (splits == context->num_inputs()) {
      return absl::InvalidArgumentError("splits has one tensor per combiner");
    }
    ShapeHandle of_splits;
    TF_RETURN_IF_ERROR(context->WithRank(context->input(splits++), 1, &of_splits));
    DimensionHandle bags;
    TF_RETURN_IF_ERROR(context->Subtract(context->Dim(of_splits, 0), 1, &bags));
    shapes->push_back(context->Vector(bags));
  }
  return absl::OkStatus();
}

}  // namespace tfhybrid
