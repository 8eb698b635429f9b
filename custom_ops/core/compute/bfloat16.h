// bfloat16: a float's upper half, to send gradients in half the bytes.
#ifndef TFHYBRID_CORE_COMPUTE_BFLOAT16_H_
#define TFHYBRID_CORE_COMPUTE_BFLOAT16_H_

#include <cstdint>

namespace tfhybrid {

// Rounds to nearest, ties to even; a NaN stays one.
void ToBfloat16(const float* from, int64_t count, uint16_t* to);
// Exact.
void FromBfloat16(const uint16_t* from, int64_t count, float* to);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_BFLOAT16_H_
