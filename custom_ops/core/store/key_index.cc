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

void KeyIndex::Insert(int64_t key, int64_t row) {
  int64_t slot = Home(key) * kSlotsPerBucket;
  const int64_t slot_mask = (bucket_mask_ + 1) * kSlotsPerBucket - 1;
  // Walking slot by slot is walking bucket by bucket, since buckets fill from the front.
  while (slots_[slot].row_plus_one != 0) slot = (slot + 1) & slot_mask;
  __atomic_store_n(&slots_[slot].key, key, __ATOMIC_RELAXED);
  // Release: pairs with the acquire of Probe.
  __atomic_store_n(&slots_[slot].row_plus_one, static_cast<uint64_t>(row) + 1, __ATOMIC_RELEASE);
}

}  // namespace tfhybrid
