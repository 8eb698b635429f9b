// The floats of a row, where they lie.
#ifndef TFHYBRID_CORE_STORE_TABLE_ROW_H_
#define TFHYBRID_CORE_STORE_TABLE_ROW_H_

#include <cstdint>

namespace tfhybrid {

struct TableRow {
  float* embedding;
  float* state;
  int64_t dim;
  int64_t state_floats;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_ROW_H_
