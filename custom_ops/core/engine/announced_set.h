// AnnouncedSet: the keys that a host has announced, each with the last announcement that named it.
//
// An open-addressing table of key and announcement side by side: an update asks for each of its
// keys, and most answers come from one cache line. A key that is removed leaves no mark, because
// the entries behind it move up. Any key is legal. Not thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_ANNOUNCED_SET_H_
#define TFHYBRID_CORE_ENGINE_ANNOUNCED_SET_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/util/hash.h"

namespace tfhybrid {

class AnnouncedSet {
 public:
  // Adds a key, or notes a later announcement of it. REQUIRES: announcement > 0.
  void Add(int64_t key, int64_t announcement) {
    if (2 * (size_ + 1) > entries_.size()) Grow();
    KeySlot& entry = entries_[Slot(key)];
    if (entry.announcement == 0) ++size_;
    entry = {key, announcement};
  }

  // The last announcement of a key; 0 for one that is not in the set.
  int64_t Find(int64_t key) const { return size_ == 0 ? 0 : entries_[Slot(key)].announcement; }

  // Removes a key that is in the set.
  void Remove(int64_t key) {
    size_t hole = Slot(key);
    --size_;
    for (size_t next = (hole + 1) & mask(); entries_[next].announcement != 0;
         next = (next + 1) & mask()) {
      // An entry moves up unless that would put it before the slot at which its search begins.
      const size_t home = Home(entries_[next].key);
      if (((next - home) & mask()) < ((next - hole) & mask())) continue;
      entries_[hole] = entries_[next];
      hole = next;
    }
    entries_[hole].announcement = 0;
  }

  bool empty() const { return size_ == 0; }
  int64_t size() const { return static_cast<int64_t>(size_); }

  // Calls `visit(key)` for each of them, in no particular order.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (const KeySlot& entry : entries_) {
      if (entry.announcement != 0) visit(entry.key);
    }
  }

 private:
  static constexpr size_t kFirstEntries = 1024;
  struct KeySlot {
    int64_t key = 0;
    int64_t announcement = 0;  // 0 is a free slot
  };

  size_t mask() const { return entries_.size() - 1; }
  size_t Home(int64_t key) const {
    return static_cast<size_t>(Mix64(static_cast<uint64_t>(key))) & mask();
  }
  // Where the key is, or would be. REQUIRES: there is a free slot.
  size_t Slot(int64_t key) const {
    size_t slot = Home(key);
    while (entries_[slot].announcement != 0 && entries_[slot].key != key) {
      slot = (slot + 1) & mask();
    }
    return slot;
  }
  void Grow() {
    std::vector<KeySlot> old(entries_.empty() ? kFirstEntries : 2 * entries_.size());
    old.swap(entries_);
    for (const KeySlot& entry : old) {
      if (entry.announcement != 0) entries_[Slot(entry.key)] = entry;
    }
  }

  std::vector<KeySlot> entries_;  // a power of two of them; at most half are used
  size_t size_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ANNOUNCED_SET_H_
