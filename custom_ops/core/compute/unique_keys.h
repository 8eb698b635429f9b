// UniqueKeys: numbers the distinct keys of a sequence 0, 1, 2, ... in order of first occurrence.
//
// An open-addressing table of numbers over a dense list of keys; reusable, so that a step allocates
// only when it is larger than every step before. Any key is legal. Not thread-safe.
#ifndef TFHYBRID_CORE_COMPUTE_UNIQUE_KEYS_H_
#define TFHYBRID_CORE_COMPUTE_UNIQUE_KEYS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/util/hash.h"
#include "core/util/span.h"

namespace tfhybrid {

class UniqueKeys {
 public:
  // Removes all keys and reserves space for `max_keys` keys. REQUIRES: max_keys < 2^32 - 1.
  void Reset(int64_t max_keys) {
    keys_.clear();
    keys_.reserve(static_cast<size_t>(max_keys));
    size_t slots = 8;
    while (slots < static_cast<size_t>(max_keys) * 2) slots *= 2;
    // Also shrinks: a small step after a large one must not clear the large one's table.
    numbers_.assign(slots, 0);
    mask_ = slots - 1;
  }

  // The number of `key`; a key not seen since Reset() gets the next one.
  // REQUIRES: fewer than `max_keys` distinct keys so far, or `key` is one of them.
  int64_t Number(int64_t key) { return NumberFrom(HomeOf(key), key); }

  // The same for each of `keys`, one after the other: slots are fetched a group of keys ahead.
  void Number(Span<const int64_t> keys, uint32_t* numbers) {
    uint64_t homes[kGroup];
    for (int64_t begin = 0; begin < keys.size(); begin += kGroup) {
      const int64_t count = std::min(kGroup, keys.size() - begin);
      for (int64_t i = 0; i < count; ++i) {
        homes[i] = HomeOf(keys[begin + i]);
        __builtin_prefetch(&numbers_[homes[i]], 1);
      }
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t number = numbers_[homes[i]];
        if (number != 0) __builtin_prefetch(&keys_[number - 1]);
      }
      for (int64_t i = 0; i < count; ++i) {
        numbers[begin + i] = static_cast<uint32_t>(NumberFrom(homes[i], keys[begin + i]));
      }
    }
  }

  // The number of `key`, or -1 if it was not seen. REQUIRES: Reset().
  int64_t Find(int64_t key) const {
    for (uint64_t slot = HomeOf(key); numbers_[slot] != 0; slot = (slot + 1) & mask_) {
      if (keys_[numbers_[slot] - 1] == key) return numbers_[slot] - 1;
    }
    return -1;
  }

  int64_t size() const { return static_cast<int64_t>(keys_.size()); }
  Span<const int64_t> keys() const { return Span<const int64_t>(keys_.data(), size()); }

 private:
  static constexpr int64_t kGroup = 256;

  uint64_t HomeOf(int64_t key) const { return Mix64(static_cast<uint64_t>(key)) & mask_; }
  int64_t NumberFrom(uint64_t slot, int64_t key) {
    for (; numbers_[slot] != 0; slot = (slot + 1) & mask_) {
      if (keys_[numbers_[slot] - 1] == key) return numbers_[slot] - 1;
    }
    keys_.push_back(key);
    numbers_[slot] = static_cast<uint32_t>(keys_.size());
    return static_cast<int64_t>(keys_.size()) - 1;
  }

  std::vector<int64_t> keys_;
  std::vector<uint32_t> numbers_;  // number + 1; 0 is a free slot
  uint64_t mask_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_UNIQUE_KEYS_H_
