// RankGradients: what one rank, or one host for all of its ranks, contributes to a table.
#ifndef TFHYBRID_CORE_COMPUTE_RANK_GRADIENTS_H_
#define TFHYBRID_CORE_COMPUTE_RANK_GRADIENTS_H_

#include <cstdint>

#include "core/util/span.h"

namespace tfhybrid {

// REQUIRES: the keys are distinct.
struct RankGradients {
  Span<const int64_t> keys;
  const float* gradients;  // [keys, dim]
  int64_t host;
  const uint16_t* ranks = nullptr;  // of a host: in how many of its ranks each key occurred
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_RANK_GRADIENTS_H_
