// CopyFloats: a memcpy for rows, which are short.
#ifndef TFHYBRID_CORE_UTIL_COPY_FLOATS_H_
#define TFHYBRID_CORE_UTIL_COPY_FLOATS_H_

#include <cstdint>
#include <cstring>

namespace tfhybrid {

// REQUIRES: the two do not overlap.
inline void CopyFloats(const float* from, int64_t count, float* to) {
  int64_t i = 0;
  // The size is a constant, so this compiles to a few moves and not to a call.
  for (; i + 8 <= count; i += 8) std::memcpy(to + i, from + i, 8 * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_COPY_FLOATS_H_
