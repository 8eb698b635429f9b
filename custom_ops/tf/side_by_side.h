// Where each feature's rows lie in a tensor [batch, all features of a sample side by side].
#ifndef TFHYBRID_TF_SIDE_BY_SIDE_H_
#define TFHYBRID_TF_SIDE_BY_SIDE_H_

#include <cstdint>
#include <vector>

#include "core/compute/bags.h"
#include "core/util/row_layout.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

struct SideBySide {
  int64_t batch = 0;
  int64_t width = 0;               // floats of a sample
  std::vector<int64_t> offsets;    // of each feature within a sample
  std::vector<RowLayout> layouts;  // of each feature's rows
};

// For features with keys of shape [batch, ...], or with a bag per sample, and these dims.
Result<SideBySide> LayOutSideBySide(const tensorflow::OpInputList& keys,
                                    const std::vector<Bags>& bags,
                                    const std::vector<int64_t>& dims);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_SIDE_BY_SIDE_H_
