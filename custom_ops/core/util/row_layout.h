// RowLayout: where the rows of consecutive keys lie among the floats of a tensor.
//
// Rows lie in runs of `run` rows, one right after the other; each run starts `stride` floats after
// the start of the one before. So one feature of a tensor [batch, all features side by side] is
// read and written where it is.
#ifndef TFHYBRID_CORE_UTIL_ROW_LAYOUT_H_
#define TFHYBRID_CORE_UTIL_ROW_LAYOUT_H_

#include <cstdint>

namespace tfhybrid {

inline constexpr int64_t kMaxDim = int64_t{1} << 16;  // floats of an embedding

struct RowLayout {
  int64_t dim;
  int64_t run;
  int64_t stride;

  // Returns the layout of an array [n, dim].
  static RowLayout Array(int64_t dim) { return {dim, 1, dim}; }
  int64_t Offset(int64_t row) const { return row / run * stride + row % run * dim; }
};

// Walks the rows of a layout without a division for each.
template <typename Float>
class RowCursor {
 public:
  RowCursor(Float* data, const RowLayout& layout, int64_t first)
      : next_(data + layout.Offset(first)),
        left_(layout.run - first % layout.run),
        layout_(layout) {}

  Float* Next() {
    Float* row = next_;
    next_ += layout_.dim;
    if (--left_ == 0) {
      next_ += layout_.stride - layout_.run * layout_.dim;
      left_ = layout_.run;
    }
    return row;
  }

 private:
  Float* next_;
  int64_t left_;  // rows of the run that are still to come
  const RowLayout layout_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_ROW_LAYOUT_H_
