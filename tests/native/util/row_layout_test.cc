#include "core/util/row_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tfhybrid::row_layout_test {
namespace {

// Where row `row` of a layout starts, counted step by step.
int64_t OffsetByCounting(const RowLayout& layout, int64_t row) {
  int64_t offset = 0, start_of_run = 0;
  for (int64_t i = 1; i <= row; ++i) {
    offset += layout.dim;
    if (i % layout.run == 0) offset = start_of_run += layout.stride;
  }
  return offset;
}

TEST(RowLayoutTest, RowsOfAnArrayFollowEachOther) {
  for (const int64_t dim : {1, 3, 16}) {
    const RowLayout layout = RowLayout::Array(dim);
    for (int64_t row = 0; row < 20; ++row) EXPECT_EQ(row * dim, layout.Offset(row));
  }
}

TEST(RowLayoutTest, RunsLieAStrideApart) {
  // One feature of 2 keys of dim 3 in samples of 10 floats.
  const RowLayout layout = {3, 2, 10};
  const std::vector<int64_t> wanted = {0, 3, 10, 13, 20, 23};
  for (size_t row = 0; row < wanted.size(); ++row) {
    EXPECT_EQ(wanted[row], layout.Offset(static_cast<int64_t>(row)));
  }
}

TEST(RowCursorTest, GoesWhereTheOffsetsAreFromAnyRow) {
  for (const RowLayout& layout : {RowLayout::Array(1), RowLayout::Array(5), RowLayout{3, 2, 10},
                                  RowLayout{4, 1, 4}, RowLayout{2, 7, 14}, RowLayout{1, 3, 100}}) {
    constexpr int64_t kRows = 30;
    std::vector<float> floats(static_cast<size_t>(layout.Offset(kRows) + layout.stride));
    for (int64_t first = 0; first < kRows; ++first) {
      RowCursor<float> cursor(floats.data(), layout, first);
      for (int64_t row = first; row < kRows; ++row) {
        EXPECT_EQ(OffsetByCounting(layout, row), cursor.Next() - floats.data());
      }
    }
  }
}

TEST(RowCursorTest, WritesOneFeatureBesideOthersAndNothingElse) {
  // Two features side by side in 4 samples: 2 keys of dim 2, then 1 key of dim 3.
  std::vector<float> out(4 * 7, 0.0f);
  RowCursor<float> left(out.data(), {2, 2, 7}, 0), right(out.data() + 4, {3, 1, 7}, 0);
  for (int i = 0; i < 8; ++i) {
    float* row = left.Next();
    row[0] = row[1] = 1.0f;
  }
  for (int i = 0; i < 4; ++i) {
    float* row = right.Next();
    row[0] = row[1] = row[2] = 2.0f;
  }
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(i % 7 < 4 ? 1.0f : 2.0f, out[i]);
}

TEST(RowCursorTest, ReadsConstantFloats) {
  const std::vector<float> rows = {1, 2, 3, 4};
  RowCursor<const float> cursor(rows.data(), RowLayout::Array(2), 1);
  EXPECT_EQ(3.0f, *cursor.Next());
}

}  // namespace
}  // namespace tfhybrid::row_layout_test
