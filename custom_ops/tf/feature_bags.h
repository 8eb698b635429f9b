// The bags of a lookup's features, as its op and the op of its gradient are told them.
#ifndef TFHYBRID_TF_FEATURE_BAGS_H_
#define TFHYBRID_TF_FEATURE_BAGS_H_

#include <vector>

#include "core/compute/bags.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

// Inputs and attributes of such an op.
#define TFHYBRID_FEATURE_BAGS          \
  Input("splits: S * int64")           \
      .Input("weights: W * float")     \
      .Attr("combiners: list(string)") \
      .Attr("weighted: list(bool)")    \
      .Attr("S: int >= 0")             \
      .Attr("W: int >= 0")

namespace tfhybrid {

// Inputs are the splits of the features that have a combiner, and the weights of those that are
// weighted, in the order of the features.
class FeatureBags {
 public:
  // Reads the attributes.
  Status Begin(tensorflow::OpKernelConstruction* context);
  // The bags of each feature, checked; those of a feature without a combiner say kNone.
  Result<std::vector<Bags>> Read(tensorflow::OpKernelContext* context,
                                 const tensorflow::OpInputList& keys) const;

 private:
  std::vector<Combiner> combiners_;
  std::vector<bool> weighted_;
};

// Rows that a feature gets in the output: a key's each, or a bag's.
int64_t RowsOf(const tensorflow::Tensor& keys, const Bags& bags);

// The shape of each feature's rows, [batch, ...] without the dim: that of its keys, or [bags].
// `first` is the number of the first input of keys.
absl::Status RowShapes(tensorflow::shape_inference::InferenceContext* context, int features,
                       int first, std::vector<tensorflow::shape_inference::ShapeHandle>* shapes);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_FEATURE_BAGS_H_
