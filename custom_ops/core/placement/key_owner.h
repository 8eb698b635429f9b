// Which node owns a key: a function of the key and the number of owners alone, the same on all.
#ifndef TFHYBRID_CORE_PLACEMENT_KEY_OWNER_H_
#define TFHYBRID_CORE_PLACEMENT_KEY_OWNER_H_

#include <cstdint>

#include "core/util/hash.h"

namespace tfhybrid {

// Which of `owners` merges the gradients of a key. Not the bits of the hash by which a merge is
// shared out to threads: those would give one thread all keys of an owner.
inline int64_t OwnerOf(int64_t key, int64_t owners) {
  const uint64_t hash = Mix64(Mix64(static_cast<uint64_t>(key)) + kGoldenGamma) >> 32;
  return static_cast<int64_t>(hash * static_cast<uint64_t>(owners) >> 32);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PLACEMENT_KEY_OWNER_H_
