// CompactIndex: int64 key -> row at 9.1 to 11.9 bytes a key, for tables whose keys lie in memory
// and whose rows do not. KeyIndex (key_index.h) is for tables in memory.
//
// Layout. Slots of 8 bytes, eight to a bucket of one cache line:
//
//     slot := row + 1 in the low 32 bits, and above them the high 32 bits of the key's hash
//
// 0 in the low bits means empty, all ones mean freed. A slot has no key: the key of the row that it
// names shows whether the row is the right one. So a lookup reads two lines, and a writer names
// slots by hash and row, which are never wrong.
//
// There are m * 2^a buckets, 4 <= m < 8, so that the next size is a seventh to a quarter larger. As
// with KeyIndex, the low a bits of a key's home are those of its hash: keys of one slice of hashes
// have every 2^k-th bucket as their homes. Probing, freed slots and what a reader sees at any
// moment are those of KeyIndex; a slot is one store. At most 7/8 of the slots are taken or freed.
//
// Not owned: the span belongs to a MappedFile that must outlive the index. One thread of one
// process writes; any number of threads of any processes find.
#ifndef TFHYBRID_CORE_STORE_COMPACT_INDEX_H_
#define TFHYBRID_CORE_STORE_COMPACT_INDEX_H_

#include <cstdint>

#include "core/store/key_index.h"
#include "core/util/hash.h"
#include "core/util/span.h"

namespace tfhybrid {

class CompactIndex {
 public:
  static constexpr int64_t kSlotsPerBucket = 8;
  static constexpr int64_t kMissing = KeyIndex::kMissing;
  // Rows that it can name.
  static constexpr int64_t kMaxRows = (int64_t{1} << 32) - 2;

  CompactIndex() = default;
  // REQUIRES: IsSize(slots.size()); slots.data() is aligned to 64 bytes.
  explicit CompactIndex(Span<uint64_t> slots);

  static bool IsSize(int64_t slots);
  // The smallest size that holds `keys` keys.
  static int64_t SlotsFor(int64_t keys);
  // Keys that `slots` slots may hold.
  static int64_t MaxKeys(int64_t slots) { return slots - slots / 8; }

  // The row of `key`, or kMissing. `has_key(row, key)` says whether a row is that of a key.
  template <typename HasKey>
  int64_t Find(int64_t key, const HasKey& has_key) const;

  // These are the writer's. All return by how much the number of freed slots changed.
  // REQUIRES: taken and freed slots are fewer than MaxKeys().
  int64_t Insert(int64_t key, int64_t row);
  // Names another row where `from` is named, if it is.
  void Move(int64_t key, int64_t from, int64_t to);
  // Nothing happens where the row is not named.
  int64_t Erase(int64_t key, int64_t row);
  // Whether the slot of a key names this row.
  bool Names(int64_t key, int64_t row) const { return FindSlot(key, row) != nullptr; }
  // Frees all slots that have the hash of a key, and calls `erased(row)` for the rows that they
  // named.
  template <typename Erased>
  int64_t EraseHash(int64_t key, const Erased& erased);

  // Calls `visit(key, row)` for the keys that have `slice` as the low bits of their hash.
  // `key_of(row)` is the key of a row.
  template <typename KeyOf, typename Visit>
  void VisitSlice(uint64_t slice, uint32_t slices_log2, const KeyOf& key_of,
                  const Visit& visit) const;
  KeyIndex::Use CountUse() const;

  // Asks for the key's home bucket.
  void Fetch(int64_t key) const {
    __builtin_prefetch(&slots_[Home(HashOf(key)) * kSlotsPerBucket]);
  }

 private:
  static constexpr uint64_t kFreed = 0xffffffff;

  static uint64_t HashOf(int64_t key) { return Mix64(static_cast<uint64_t>(key)); }
  static uint64_t SlotOf(uint64_t hash, int64_t row) {
    return hash >> 32 << 32 | static_cast<uint64_t>(row + 1);
  }
  static uint64_t RowPart(uint64_t slot) { return slot & kFreed; }
  static bool IsTaken(uint64_t slot) { return RowPart(slot) != 0 && RowPart(slot) != kFreed; }
  static int64_t RowOf(uint64_t slot) { return static_cast<int64_t>(RowPart(slot)) - 1; }

  int64_t Home(uint64_t hash) const {
    const uint64_t high = (hash >> 32) * high_ >> 32;
    return static_cast<int64_t>(high << low_log2_ | (hash & low_mask_));
  }
  int64_t Next(int64_t bucket) const { return bucket + 1 == buckets_ ? 0 : bucket + 1; }
  uint64_t Load(int64_t slot) const { return __atomic_load_n(&slots_[slot], __ATOMIC_ACQUIRE); }
  void Store(int64_t slot, uint64_t value) {
    __atomic_store_n(&slots_[slot], value, __ATOMIC_RELEASE);
  }
  // Calls `take(number, slot)` for the slots of a key's probe, until it returns true or the probe
  // ends.
  template <typename Take>
  void Probe(int64_t home, const Take& take) const;
  const uint64_t* FindSlot(int64_t key, int64_t row) const;
  int64_t Free(int64_t number);

  uint64_t* slots_ = nullptr;
  int64_t buckets_ = 0;
  uint64_t high_ = 0;  // m
  uint32_t low_log2_ = 0;
  uint64_t low_mask_ = 0;
};

template <typename Take>
void CompactIndex::Probe(int64_t home, const Take& take) const {
  int64_t bucket = home;
  // A damaged index may have no empty slot; a whole turn without an answer is one.
  for (int64_t turns = 0; turns < buckets_; ++turns, bucket = Next(bucket)) {
    uint64_t slot = 0;
    for (int64_t i = 0; i < kSlotsPerBucket; ++i) {
      const int64_t number = bucket * kSlotsPerBucket + i;
      slot = Load(number);
      if (IsTaken(slot) && take(number, slot)) return;
    }
    if (slot == 0) return;
  }
}

template <typename HasKey>
int64_t CompactIndex::Find(int64_t key, const HasKey& has_key) const {
  const uint64_t hash = HashOf(key);
  int64_t found = kMissing;
  Probe(Home(hash), [&](int64_t, uint64_t slot) {
    if (slot >> 32 != hash >> 32 || !has_key(RowOf(slot), key)) return false;
    found = RowOf(slot);
    return true;
  });
  return found;
}

template <typename Erased>
int64_t CompactIndex::EraseHash(int64_t key, const Erased& erased) {
  const uint64_t hash = HashOf(key);
  int64_t freed = 0;
  Probe(Home(hash), [&](int64_t number, uint64_t slot) {
    if (slot >> 32 != hash >> 32) return false;
    freed += Free(number);
    erased(RowOf(slot));
    return false;
  });
  return freed;
}

template <typename KeyOf, typename Visit>
void CompactIndex::VisitSlice(uint64_t slice, uint32_t slices_log2, const KeyOf& key_of,
                              const Visit& visit) const {
  const uint64_t slice_mask = (uint64_t{1} << slices_log2) - 1;
  const auto stride = static_cast<int64_t>(slice_mask & low_mask_) + 1;
  for (auto home = static_cast<int64_t>(slice) & (stride - 1); home < buckets_; home += stride) {
    Probe(home, [&](int64_t, uint64_t slot) {
      const int64_t row = RowOf(slot), key = key_of(row);
      const uint64_t hash = HashOf(key);
      if (Home(hash) == home && (hash & slice_mask) == slice) visit(key, row);
      return false;
    });
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_COMPACT_INDEX_H_
