// RowLocator: which chunk holds a row, and where in it.
//
// Rows live in chunks that never move. The first chunks are small and double, so that a small table
// costs little and a growing one adds at most as much as it has; from the cap on all chunks are
// equal:
//   chunk:  0      1      2       3       ...  k           k+1         ...
//   rows:   2^f    2^f    2^(f+1) 2^(f+2) ...  2^(c-1)     2^c, 2^c, ...        k = c - f
// The first k + 1 chunks together hold 2^c rows, which makes the arithmetic two shifts.
#ifndef TFHYBRID_CORE_STORE_ROW_LOCATOR_H_
#define TFHYBRID_CORE_STORE_ROW_LOCATOR_H_

#include <cstdint>

namespace tfhybrid {

class RowLocator {
 public:
  struct ChunkOffset {
    int64_t chunk;
    int64_t offset;
  };

  // REQUIRES: 0 <= first_log2 <= chunk_log2 < 40.
  RowLocator(int first_log2, int chunk_log2) : first_log2_(first_log2), chunk_log2_(chunk_log2) {}

  ChunkOffset Locate(int64_t row) const {
    const int64_t full = row >> chunk_log2_;
    if (full > 0)
      return {chunk_log2_ - first_log2_ + full, row & ((int64_t{1} << chunk_log2_) - 1)};
    const int64_t scaled = row >> first_log2_;
    if (scaled == 0) return {0, row};
    const int log2 = 63 - __builtin_clzll(static_cast<uint64_t>(scaled));
    return {log2 + 1, row - (int64_t{1} << (first_log2_ + log2))};
  }

  int64_t ChunkRows(int64_t chunk) const {
    if (chunk == 0) return int64_t{1} << first_log2_;
    const int64_t log2 = first_log2_ + chunk - 1;
    return int64_t{1} << (log2 < chunk_log2_ ? log2 : chunk_log2_);
  }

  // Rows of the largest chunks; the smaller ones before them hold as many in all.
  int64_t MaxChunkRows() const { return int64_t{1} << chunk_log2_; }

  // Rows that the first `chunks` chunks hold.
  int64_t Capacity(int64_t chunks) const {
    if (chunks == 0) return 0;
    const int64_t small = chunk_log2_ - first_log2_ + 1;
    if (chunks <= small) return int64_t{1} << (first_log2_ + chunks - 1);
    return (chunks - small + 1) << chunk_log2_;
  }

 private:
  int first_log2_;
  int chunk_log2_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_LOCATOR_H_
