// A row, where it lies.
#ifndef TFHYBRID_CORE_STORE_TABLE_ROW_H_
#define TFHYBRID_CORE_STORE_TABLE_ROW_H_

#include <cstdint>

#include "core/compute/row_policy.h"

namespace tfhybrid {

struct TableRow {
  float* embedding;
  float* state;
  int64_t dim;
  int64_t state_floats;
  RowHistory* history = nullptr;  // null where the table keeps none
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_ROW_H_
