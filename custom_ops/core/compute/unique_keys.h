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
    keys_.reserve(static_cast<size_t>(max_keys) + 1);
    keys_.push_back(0);
    size_t slots = 8;
    while (slots < static_cast<size_t>(max_keys) * 2) slots *= 2;
    // Also shrinks: a small step after a large one must not clear the large one's table.
    slots_.assign(slots, 0);
    mask_ = slots - 1;
  }

  // The number of `key`; a key not seen since Reset() gets the next one.
  // REQUIRES: fewer than `max_keys` distinct keys so far, or `key` is one of them.
  int64_t Number(int64_t key) { return NumberFrom(HomeOf(key), key); }

  // The same for each of `keys`, one after the other.
  template <typename Integer>
  void Number(Span<const int64_t> keys, Integer* numbers) {
    bool repeat = true;  // keys do, judged by the last group
    for (int64_t begin = 0; begin < keys.size(); begin += kGroup) {
      const Span<const int64_t> group = keys.subspan(begin, std::min(kGroup, keys.size() - begin));
      const int64_t before = size();
      if (repeat) {
        NumberGroup(group, numbers + begin);
      } else {
        for (int64_t i = 0; i < group.size(); ++i) {
          numbers[begin + i] = static_cast<Integer>(Number(group[i]));
        }
      }
      repeat = (size() - before) * 8 < group.size() * 7;
    }
  }

  // The number of `key`, or -1 if it was not seen. REQUIRES: Reset().
  int64_t Find(int64_t key) const {
    for (uint64_t slot = HomeOf(key); slots_[slot] != 0; slot = (slot + 1) & mask_) {
      if (keys_[slots_[slot]] == key) return slots_[slot] - int64_t{1};
    }
    return -1;
  }

  int64_t size() const { return static_cast<int64_t>(keys_.size()) - 1; }
  Span<const int64_t> keys() const { return Span<const int64_t>(keys_.data() + 1, size()); }

 private:
  static constexpr int64_t kGroup = 64;

  uint64_t HomeOf(int64_t key) const { return Mix64(static_cast<uint64_t>(key)) & mask_; }
  // `slot` is the key's home.
  int64_t NumberFrom(uint64_t slot, int64_t key) {
    for (; slots_[slot] != 0; slot = (slot + 1) & mask_) {
      if (keys_[slots_[slot]] == key) return slots_[slot] - int64_t{1};
    }
    slots_[slot] = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
    return size() - 1;
  }
  // Numbers keys that are in their home already first, without a branch: where keys repeat, a
  // processor cannot predict which ones are new. REQUIRES: at most kGroup keys.
  template <typename Integer>
  void NumberGroup(Span<const int64_t> keys, Integer* numbers) {
    uint64_t homes[kGroup];
    uint32_t others[kGroup];
    int64_t count = 0;
    for (int64_t i = 0; i < keys.size(); ++i) {
      homes[i] = HomeOf(keys[i]);
      const uint32_t at = slots_[homes[i]];
      numbers[i] = static_cast<Integer>(at - 1);
      others[count] = static_cast<uint32_t>(i);
      count += static_cast<int64_t>(at == 0) | static_cast<int64_t>(keys_[at] != keys[i]);
    }
    for (int64_t o = 0; o < count; ++o) {
      const uint32_t i = others[o];
      numbers[i] = static_cast<Integer>(NumberFrom(homes[i], keys[i]));
    }
  }

  std::vector<int64_t> keys_ = {0};  // from position 1 on
  std::vector<uint32_t> slots_;      // a key's position; 0 is a free slot
  uint64_t mask_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_UNIQUE_KEYS_H_
