// KeyIndex: int64 key -> row, open addressing over a span of shared memory.
//
// Layout. `slots` (a power of two) slots of 16 bytes, four to a cache line: a bucket.
//
//     slot   := { int64 key, uint64 row + 1 }    0 in the second word means empty: any key is legal
//     bucket := slot[4]                          64 bytes, aligned
//
// A key's home bucket is the low bits of Mix64(key). A key lies in the first bucket, counted from
// home and wrapping around, that had a free slot when it came; slots of a bucket fill from the
// front. A slot whose key was erased is *freed* where its bucket is full, and empty elsewhere; both
// are free to the next key that comes by.
//
// Invariants, whatever moment a reader looks:
//   1. A taken slot is complete: the key is stored before the row (release), the row is loaded
//      before the key (acquire).
//   2. Between a key's home bucket and its own every bucket is full, of taken and freed slots. So
//      a probe ends at the first bucket whose last slot is empty.
//   3. At most 3/4 of the slots are taken or freed. So there is an empty slot, and every probe
//   ends.
//   4. A row is complete, and counted by TableCounters::rows, before its number appears here
//      (TableWriter::AddRows).
// A writer killed between the two stores of (1) leaves a free slot with a stray key: harmless, the
// next insertion overwrites it. Where keys are erased or get other rows, a lookup that runs beside
// the update may read the row of another key; lookups of a training step do not (table_reader.h).
//
// What hides the memory latency: where many keys are at hand, the buckets of their probes are
// fetched well before they are read (FindBatch, FindRoom): at 3/4 full, every other probe for a
// missing key reads more than one. A caller with keys of its own order fetches home buckets alone
// (Fetch).
//
// Not owned: the span belongs to a MappedFile that must outlive the index. One thread of one
// process inserts; any number of threads of any processes find.
#ifndef TFHYBRID_CORE_STORE_KEY_INDEX_H_
#define TFHYBRID_CORE_STORE_KEY_INDEX_H_

#include <cstdint>

#include "core/util/hash.h"
#include "core/util/span.h"

namespace tfhybrid {

// How far ahead of the key in hand the home buckets of the next ones are fetched.
constexpr int64_t kSlotsAhead = 8;

struct IndexSlot {
  int64_t key;
  uint64_t row_plus_one;
};
static_assert(sizeof(IndexSlot) == 16);

class KeyIndex {
 public:
  static constexpr int64_t kSlotsPerBucket = 4;
  static constexpr int64_t kMissing = -1;
  // Keys that are probed together. Their buckets fit into half of a first cache of 32 KiB.
  static constexpr int64_t kGroup = 256;

  KeyIndex() = default;
  // REQUIRES: slots.size() is a power of two and at least kSlotsPerBucket; slots.data() is aligned
  // to 64 bytes.
  explicit KeyIndex(Span<IndexSlot> slots)
      : slots_(slots.data()), bucket_mask_(slots.size() / kSlotsPerBucket - 1) {}

  // The smallest legal number of slots that holds `keys` keys with invariant 3.
  static int64_t SlotsFor(int64_t keys);
  // Keys that `slots` slots may hold.
  static int64_t MaxKeys(int64_t slots) { return slots - slots / 4; }

  // The row of `key`, or kMissing.
  int64_t Find(int64_t key) const {
    int64_t bucket = Home(key);
    // A damaged index may have no empty slot; a whole turn without an answer is one.
    for (int64_t turns = 0; turns <= bucket_mask_; ++turns, bucket = Next(bucket)) {
      const Answer answer = Ask(bucket, key);
      if (answer.row != kMissing) return answer.row;
      if (!answer.full) return kMissing;
    }
    return kMissing;
  }

  // rows[i] = Find(keys[i]). REQUIRES: rows.size() >= keys.size().
  void FindBatch(Span<const int64_t> keys, Span<int64_t> rows) const;

  // These are the writer's. All return by how much the number of freed slots changed.
  // REQUIRES: `key` is not in the index; taken and freed slots are fewer than MaxKeys(); row >= 0.
  int64_t Insert(int64_t key, int64_t row) { return InsertFrom(Home(key), key, row); }
  // Insert() in two halves, for a group of keys: FindRoom() finds the first bucket of each probe
  // that has a free slot, InsertFrom() takes a slot there, or behind it if another key has taken
  // it. Between the two, keys may be inserted but not erased.
  // REQUIRES: keys.size() <= kGroup.
  void FindRoom(Span<const int64_t> keys, int64_t* buckets) const;
  int64_t InsertFrom(int64_t bucket, int64_t key, int64_t row);
  // The same for many keys at once, on a thread for each part of the index: a range of its buckets.
  // Inserts keys[i] with row first + i where its home lies in parts [begin, end), as parts[i] says.
  // Where its probe leaves them, parts[i] becomes kLeft. Returns false, and may have inserted some,
  // if a key is in the index already.
  // REQUIRES: no slot is freed; parts[i] == PartOf(keys[i]) at first; no thread does other parts of
  // other keys meanwhile.
  static constexpr uint8_t kParts = 4, kLeft = kParts;
  uint8_t PartOf(int64_t key) const { return PartOfBucket(Home(key)); }
  bool InsertNew(Span<const int64_t> keys, int64_t first, uint8_t begin, uint8_t end,
                 uint8_t* parts);
  // Names another row for a key, or inserts it.
  int64_t Set(int64_t key, int64_t row);
  // Nothing happens where the key is not there.
  int64_t Erase(int64_t key);

  // Calls `visit(key, row)` for the keys that have `slice` as the low bits of their hash, in the
  // order of slots.
  template <typename Visit>
  void VisitSlice(uint64_t slice, uint32_t slices_log2, const Visit& visit) const;
  // Slots that are taken, and that are freed.
  struct Use {
    int64_t taken;
    int64_t freed;
  };
  Use CountUse() const;

  // Asks for the key's home bucket, which it returns, while the caller has other work.
  int64_t Fetch(int64_t key) const {
    const int64_t home = Home(key);
    __builtin_prefetch(&slots_[home * kSlotsPerBucket]);
    return home;
  }

 private:
  // Marks a freed slot; no row's number has this bit.
  static constexpr uint64_t kFreed = uint64_t{1} << 63;
  // Buckets that VisitSlice() fetches ahead.
  static constexpr int64_t kVisitDistance = 8;

  bool InsertInParts(int64_t bucket, int64_t key, int64_t row, uint8_t begin, uint8_t end,
                     uint8_t* part);
  static bool IsTaken(uint64_t row_plus_one) { return (row_plus_one & ~kFreed) != 0; }
  IndexSlot* FindSlot(int64_t key) const;
  // The first free slot of a bucket, or kSlotsPerBucket; without a branch, as Ask().
  int64_t FirstFree(int64_t bucket) const {
    int64_t first = kSlotsPerBucket;
    for (int64_t i = kSlotsPerBucket; i-- > 0;) {
      first = IsTaken(slots_[bucket * kSlotsPerBucket + i].row_plus_one) ? first : i;
    }
    return first;
  }

  int64_t Home(int64_t key) const {
    return static_cast<int64_t>(Mix64(static_cast<uint64_t>(key))) & bucket_mask_;
  }

  int64_t Next(int64_t bucket) const { return (bucket + 1) & bucket_mask_; }

  uint8_t PartOfBucket(int64_t bucket) const {
    return static_cast<uint8_t>(bucket * kParts >>
                                __builtin_ctzll(static_cast<uint64_t>(bucket_mask_) + 1));
  }

  // The row that a bucket names for a key, or kMissing, and whether the bucket is full.
  struct Answer {
    int64_t row;
    bool full;
  };
  Answer Ask(int64_t bucket, int64_t key) const {
    const IndexSlot* slot = &slots_[bucket * kSlotsPerBucket];
    // All four without a branch: where in its bucket a key lies cannot be predicted.
    uint64_t found = 0, last = 0;
    for (int64_t i = 0; i < kSlotsPerBucket; ++i, ++slot) {
      // Acquire: pairs with the release of InsertFrom, so the key read next is the one stored with
      // this row.
      last = __atomic_load_n(&slot->row_plus_one, __ATOMIC_ACQUIRE);
      found |= __atomic_load_n(&slot->key, __ATOMIC_RELAXED) == key ? last : 0;
    }
    // A key may have left a freed slot behind.
    return {static_cast<int64_t>(found & ~kFreed) - 1, last != 0};
  }

  // The probes of up to kGroup keys, a bucket of each by turns: `needs_next(i, bucket)` reads that
  // of keys[i]. In the end buckets[i] is the last one that was read for it.
  template <typename NeedsNext>
  void ProbeGroup(Span<const int64_t> keys, int64_t* buckets, const NeedsNext& needs_next) const;

  IndexSlot* slots_ = nullptr;
  int64_t bucket_mask_ = 0;
};

template <typename Visit>
void KeyIndex::VisitSlice(uint64_t slice, uint32_t slices_log2, const Visit& visit) const {
  const uint64_t slice_mask = (uint64_t{1} << slices_log2) - 1;
  // Homes of a slice are `stride` apart where there are more buckets than slices.
  const int64_t stride = static_cast<int64_t>(slice_mask & static_cast<uint64_t>(bucket_mask_)) + 1;
  const int64_t first = static_cast<int64_t>(slice & static_cast<uint64_t>(stride - 1));
  for (int64_t home = first; home <= bucket_mask_; home += stride) {
    const int64_t ahead = (home + kVisitDistance * stride) & bucket_mask_;
    __builtin_prefetch(&slots_[ahead * kSlotsPerBucket]);
    for (int64_t bucket = home;; bucket = Next(bucket)) {
      const IndexSlot* slot = &slots_[bucket * kSlotsPerBucket];
      for (int64_t s = 0; s < kSlotsPerBucket; ++s) {
        if (!IsTaken(slot[s].row_plus_one)) continue;
        const uint64_t hash = Mix64(static_cast<uint64_t>(slot[s].key));
        const bool from_home =
            (hash & static_cast<uint64_t>(bucket_mask_)) == static_cast<uint64_t>(home);
        if (!from_home || (hash & slice_mask) != slice) continue;
        visit(slot[s].key, static_cast<int64_t>(slot[s].row_plus_one - 1));
      }
      if (slot[kSlotsPerBucket - 1].row_plus_one == 0) break;
    }
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_KEY_INDEX_H_
