// Rows of a table whose embedding holds a NaN.
#include <algorithm>
#include <vector>

#include "core/store/table_reader.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

TFHYBRID_SIMD int64_t CountNan(const float* rows, int64_t count, int64_t dim) {
  int64_t found = 0;
  for (int64_t row = 0; row < count; ++row, rows += dim) {
    bool nan = false;
    for (int64_t column = 0; column < dim; ++column) nan |= rows[column] != rows[column];
    found += nan;
  }
  return found;
}

}  // namespace

Result<int64_t> TableReader::CountNanRows() {
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedView> view, CurrentView());
  const int64_t rows = MappedRows(*view);
  int64_t found = 0;
  if (in_files()) {
    std::vector<float> row(static_cast<size_t>(dim()));
    for (int64_t number = 0; number < rows; ++number) {
      TFHYBRID_RETURN_IF_ERROR(ReadFileRows(*view, number, 1, row.data()));
      found += CountNan(row.data(), 1, dim());
    }
    return found;
  }
  for (int64_t chunk = 0, first = 0; first < rows; ++chunk) {
    const int64_t count = std::min(rows - first, locator_.ChunkRows(chunk));
    found += CountNan(view->embeddings[static_cast<size_t>(chunk)], count, dim());
    first += count;
  }
  return found;
}

}  // namespace tfhybrid
