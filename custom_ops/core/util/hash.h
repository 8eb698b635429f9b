// Mix64: the one hash of the project, a bijection on 64 bits.
//
// It is the output function of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014). The same function places keys in the index and drives the initial
// values, so it can never change: exported models compute it with stock TensorFlow integer
// operations. Golden values are pinned in the tests.
#ifndef TFHYBRID_CORE_UTIL_HASH_H_
#define TFHYBRID_CORE_UTIL_HASH_H_

#include <cstdint>

namespace tfhybrid {

inline constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ull;

inline constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_HASH_H_
