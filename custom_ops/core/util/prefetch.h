// Asking for memory before it is read.
#ifndef TFHYBRID_CORE_UTIL_PREFETCH_H_
#define TFHYBRID_CORE_UTIL_PREFETCH_H_

#include <cstdint>

namespace tfhybrid {

// Asks for the cache lines of `count` floats.
inline void PrefetchFloats(const float* floats, int64_t count) {
  constexpr int64_t kLineFloats = 16;
  for (int64_t i = 0; i < count; i += kLineFloats) {
    __builtin_prefetch(floats + i);
    // To the compiler a loop of nothing but prefetches does nothing, and GCC removes it.
    asm volatile("" : : "r"(floats + i));
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_PREFETCH_H_
