#include "core/store/key_index.h"

#include <algorithm>

namespace tfhybrid {

int64_t KeyIndex::SlotsFor(int64_t keys) {
  int64_t slots = kSlotsPerBucket;
  while (MaxKeys(slots) < keys) slots *= 2;
  return slots;
}

template <typename NeedsNext>
void KeyIndex::ProbeGroup(Span<const int64_t> keys, int64_t* buckets,
                          const NeedsNext& needs_next) const {
  int64_t going[kGroup];
  int64_t left = keys.size();
  for (int64_t i = 0; i < left; ++i) {
    buckets[i] = Fetch(keys[i]);
    going[i] = i;
  }
  for (int64_t turns = 0; left > 0 && turns <= bucket_mask_; ++turns) {
    int64_t still = 0;
    for (int64_t g = 0; g < left; ++g) {
      const int64_t i = going[g];
      // Without a branch: which probes need another bucket cannot be predicted.
      going[still] = i;
      still += static_cast<int64_t>(needs_next(i, buckets[i]));
    }
    left = still;
    for (int64_t g = 0; g < left; ++g) {
      int64_t& bucket = buckets[going[g]];
      bucket = Next(bucket);
      __builtin_prefetch(&slots_[bucket * kSlotsPerBucket]);
    }
  }
}

void KeyIndex::FindBatch(Span<const int64_t> keys, Span<int64_t> rows) const {
  int64_t buckets[kGroup];
  for (int64_t start = 0; start < keys.size(); start += kGroup) {
    const Span<const int64_t> group = keys.subspan(start, std::min(kGroup, keys.size() - start));
    ProbeGroup(group, buckets, [&](int64_t i, int64_t bucket) {
      const Answer answer = Ask(bucket, group[i]);
      rows[start + i] = answer.row;
      return (answer.row == kMissing) & answer.full;
    });
  }
}

void KeyIndex::FindRoom(Span<const int64_t> keys, int64_t* buckets) const {
  ProbeGroup(keys, buckets,
             [&](int64_t, int64_t bucket) { return FirstFree(bucket) == kSlotsPerBucket; });
}

int64_t KeyIndex::InsertFrom(int64_t bucket, int64_t key, int64_t row) {
  while (FirstFree(bucket) == kSlotsPerBucket) bucket = Next(bucket);
  IndexSlot* const slot = &slots_[bucket * kSlotsPerBucket + FirstFree(bucket)];
  const bool was_freed = slot->row_plus_one == kFreed;
  __atomic_store_n(&slot->key, key, __ATOMIC_RELAXED);
  // Release: pairs with the acquire of Ask.
  __atomic_store_n(&slot->row_plus_one, static_cast<uint64_t>(row) + 1, __ATOMIC_RELEASE);
  return was_freed ? -1 : 0;
}

bool KeyIndex::InsertNew(Span<const int64_t> keys, int64_t first, uint8_t begin, uint8_t end,
                         uint8_t* parts) {
  int64_t group[kGroup], positions[kGroup];
  int64_t size = 0;
  for (int64_t i = 0; i < keys.size(); ++i) {
    group[size] = keys[i];
    positions[size] = i;
    // Atomic: who does another part may be leaving the key.
    const uint8_t part = __atomic_load_n(&parts[i], __ATOMIC_RELAXED);
    // Without a branch: which keys lie in the parts cannot be predicted.
    size += static_cast<int64_t>((part >= begin) & (part < end));
    if (size < kGroup && i + 1 < keys.size()) continue;
    int64_t buckets[kGroup];
    bool is_new = true;
    const Span<const int64_t> probed(group, size);
    ProbeGroup(probed, buckets, [&](int64_t g, int64_t bucket) {
      const Answer answer = Ask(bucket, probed[g]);
      is_new &= answer.row == kMissing;
      return (answer.row == kMissing) & answer.full;
    });
    for (int64_t g = 0; is_new && g < size; ++g) {
      const int64_t position = positions[g];
      is_new = InsertInParts(buckets[g], group[g], first + position, begin, end, &parts[position]);
    }
    if (!is_new) return false;
    size = 0;
  }
  return true;
}

// From the bucket where its probe has ended: keys of its group may have come meanwhile, an equal
// one, too.
bool KeyIndex::InsertInParts(int64_t bucket, int64_t key, int64_t row, uint8_t begin, uint8_t end,
                             uint8_t* part) {
  for (;; bucket = Next(bucket)) {
    const uint8_t reached = PartOfBucket(bucket);
    if (reached < begin || reached >= end) {
      __atomic_store_n(part, kLeft, __ATOMIC_RELAXED);
      return true;
    }
    const Answer answer = Ask(bucket, key);
    if (answer.row != kMissing) return false;
    if (answer.full) continue;
    InsertFrom(bucket, key, row);
    return true;
  }
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
  for (int64_t turns = 0; turns <= bucket_mask_; ++turns, bucket = Next(bucket)) {
    IndexSlot* const slots = &slots_[bucket * kSlotsPerBucket];
    for (int64_t i = 0; i < kSlotsPerBucket; ++i) {
      if (slots[i].key == key && IsTaken(slots[i].row_plus_one)) return &slots[i];
    }
    if (slots[kSlotsPerBucket - 1].row_plus_one == 0) return nullptr;
  }
  return nullptr;
}

}  // namespace tfhybrid
