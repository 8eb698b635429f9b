#include "core/store/row_locator.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tfhybrid::row_locator_test {
namespace {

// Every row of a chunk, chunk after chunk, is the next row: a bijection, and Capacity agrees with
// ChunkRows.
TEST(RowLocatorTest, RowsFillTheChunksOneAfterTheOther) {
  for (int chunk_log2 = 0; chunk_log2 <= 7; ++chunk_log2) {
    for (int first_log2 = 0; first_log2 <= chunk_log2; ++first_log2) {
      const RowLocator locator(first_log2, chunk_log2);
      int64_t row = 0;
      for (int64_t chunk = 0; chunk < chunk_log2 - first_log2 + 6; ++chunk) {
        ASSERT_EQ(row, locator.Capacity(chunk)) << first_log2 << " " << chunk_log2;
        for (int64_t offset = 0; offset < locator.ChunkRows(chunk); ++offset, ++row) {
          const RowLocator::ChunkOffset at = locator.Locate(row);
          ASSERT_EQ(chunk, at.chunk) << row << " " << first_log2 << " " << chunk_log2;
          ASSERT_EQ(offset, at.offset) << row << " " << first_log2 << " " << chunk_log2;
        }
      }
    }
  }
}

TEST(RowLocatorTest, ChunksDoubleUpToTheCap) {
  const RowLocator locator(6, 9);
  const int64_t rows[] = {64, 64, 128, 256, 512, 512, 512};
  for (int64_t chunk = 0; chunk < 7; ++chunk) EXPECT_EQ(rows[chunk], locator.ChunkRows(chunk));
}

TEST(RowLocatorTest, SizesAre64Bit) {
  const RowLocator locator(6, 20);
  const int64_t chunk = int64_t{1} << 36;
  const int64_t row = locator.Capacity(chunk);
  EXPECT_EQ((chunk - 14) << 20, row);
  EXPECT_EQ(chunk, locator.Locate(row).chunk);
  EXPECT_EQ(0, locator.Locate(row).offset);
  EXPECT_EQ(chunk - 1, locator.Locate(row - 1).chunk);
  EXPECT_EQ((1 << 20) - 1, locator.Locate(row - 1).offset);
}

}  // namespace
}  // namespace tfhybrid::row_locator_test
