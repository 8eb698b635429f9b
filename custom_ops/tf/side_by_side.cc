#include "tf/side_by_side.h"

#include <algorithm>

namespace tfhybrid {

Result<SideBySide> LayOutSideBySide(const tensorflow::OpInputList& keys,
                                    const std::vector<Bags>& bags,
                                    const std::vector<int64_t>& dims) {
  SideBySide layout;
  std::vector<int64_t> rows;  // of each feature in a sample
  for (int i = 0; i < keys.size(); ++i) {
    const Bags& of_feature = bags[static_cast<size_t>(i)];
    const bool bagged = of_feature.combiner != Combiner::kNone;
    const int64_t batch = bagged               ? of_feature.size()
                          : keys[i].dims() < 1 ? -1
                                               : keys[i].dim_size(0);
    if (batch < 0 || (i > 0 && batch != layout.batch)) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "Features side by side want keys [batch, ...] of one batch. Received: "
                           "feature ",
                           i, bagged ? " with bags and keys" : "", " of shape ",
                           keys[i].shape().DebugString(), " beside a batch of ", layout.batch);
    }
    layout.batch = batch;
    int64_t in_sample = 1;
    for (int axis = 1; !bagged && axis < keys[i].dims(); ++axis) {
      in_sample *= keys[i].dim_size(axis);
    }
    rows.push_back(in_sample);
    layout.offsets.push_back(layout.width);
    layout.width += in_sample * dims[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    // A feature without keys has no row to place.
    layout.layouts.push_back({dims[i], std::max<int64_t>(rows[i], 1), layout.width});
  }
  return layout;
}

}  // namespace tfhybrid
