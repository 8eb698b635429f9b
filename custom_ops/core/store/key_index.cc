#include "core/store/key_index.h"

#include <algorithm>

namespace tfhybrid {
namespace {

// Cache lines in flight at once. Cores of today track 10 to 16 misses in L1 and some 48 in L2; more
// keys in a group only push prefetched lines out again.
constexpr int64_t kGroup = 64;

}  // namespace

int64_t KeyIndex::SlotsFor(int64_t keys) {
  int64_t slots = kSlotsPerBucket;
  while (MaxKeys(slots) < keys) slots *= 2;
  return slots;
}

void KeyIndex::FindBatch(Span<const int64_t> keys, Span<int64_t> rows) const {
  int64_t homes[kGroup];
  for (int64_t start = 0; start < keys.size(); start += kGroup) {
    const int64_t count = std::min(kGroup, keys.size() - start);
    for (int64_t i = 0; i < count; ++i) {
      homes[i] = Fetch(keys[start + i]);
    }
    for (int64_t i = 0; i < count; ++i) rows[start + i] = Probe(keys[start + i], homes[i]);
  }
}

int64_t KeyIndex::Insert(int64_t key, int64_t row) {
  int64_t slot = Home(key) * kSlotsPerBucket;
  const int64_t slot_mask = (bucket_mask_ + 1) * kSlotsPerBucket - 1;
  // Walking slot by slot is walking bucket by bucket, since buckets fill from the front.
  while (IsTaken(slots_[slot].row_plus_one)) slot = (slot + 1) & slot_mask;
  const bool was_freed = slots_[slot].row_plus_one == kFreed;
  __atomic_store_n(&slots_[slot].key, key, __ATOMIC_RELAXED);
  // Release: pairs with the acquire of Probe.
  __atomic_store_n(&slots_[slot].row_plus_one, static_cast<uint64_t>(row) + 1, __ATOMIC_RELEASE);
  return was_freed ? -1 : 0;
}

int64_t KeyIndex::Set(int64_t key, int64_t row) {
  IndexSlot* const slot = FindSlot(key);
  if (slot == nullptr) return Insert(key, row);
  __atomic_store_n(&slot->row_plus_one, static_cast<uint64_t>(row) + 1, __ATOMIC_RELEASE);
  return 0;
}

int64_t KeyIndex::Erase(int64_t key) {
  IndexSlot* const slot = FindSlot(key);
  if (slot == nullptr) return 0;
  const int64_t number = slot - slots_;
  const int64_t last = number | (kSlotsPerBucket - 1);
  // In a full bucket an empty slot would end the probes for keys behind it.
  const bool full = slots_[last].row_plus_one != 0;
  __atomic_store_n(&slot->row_plus_one, full ? kFreed : 0, __ATOMIC_RELEASE);
  return full ? 1 : 0;
}

KeyIndex::Use KeyIndex::CountUse() const {
  Use use = {};
  const int64_t slots = (bucket_mask_ + 1) * kSlotsPerBucket;
  for (int64_t slot = 0; slot < slots; ++slot) {
    use.taken += IsTaken(slots_[slot].row_plus_one);
    use.freed += slots_[slot].row_plus_one == kFreed;
  }
  return use;
}

IndexSlot* KeyIndex::FindSlot(int64_t key) const {
  int64_t bucket = Home(key);
  for (int64_t turns = 0; turns <= bucket_mask_; ++turns, bucket = (bucket + 1) & bucket_mask_) {
    IndexSlot* const slots = &slots_[bucket * kSlotsPerBucket];
    for (int64_t i = 0; i < kSlotsPerBucket; ++i) {
      if (slots[i].key == key && IsTaken(slots[i].row_plus_one)) return &slots[i];
    }
    if (slots[kSlotsPerBucket - 1].row_plus_one == 0) return nullptr;
  }
  return nullptr;
}

}  // namespace tfhybrid
