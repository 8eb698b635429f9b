#include "core/compute/bfloat16.h"

#include <cstring>

#include "core/util/simd.h"

namespace tfhybrid {
namespace {

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kQuiet = 0x00400000u;

}  // namespace

TFHYBRID_SIMD void ToBfloat16(const float* __restrict from, int64_t count,
                              uint16_t* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof(bits));
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const uint32_t kept = (bits & ~kSign) > kInfinity ? (bits | kQuiet) : rounded;
    to[i] = static_cast<uint16_t>(kept >> 16);
  }
}

TFHYBRID_SIMD void FromBfloat16(const uint16_t* __restrict from, int64_t count,
                                float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

}  // namespace tfhybrid
