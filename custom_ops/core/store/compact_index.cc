#include "core/store/compact_index.h"

namespace tfhybrid {
namespace {

// m is below twice this.
constexpr int64_t kLeastHigh = 4;
constexpr uint32_t kLeastHighLog2 = 2;

uint32_t Log2(int64_t number) {
  return 63 - static_cast<uint32_t>(__builtin_clzll(static_cast<uint64_t>(number)));
}

}  // namespace

CompactIndex::CompactIndex(Span<uint64_t> slots)
    : slots_(slots.data()),
      buckets_(slots.size() / kSlotsPerBucket),
      low_log2_(Log2(buckets_) - kLeastHighLog2),
      low_mask_((uint64_t{1} << low_log2_) - 1) {
  high_ = static_cast<uint64_t>(buckets_) >> low_log2_;
}

bool CompactIndex::IsSize(int64_t slots) {
  const int64_t buckets = slots / kSlotsPerBucket;
  if (buckets < kLeastHigh || buckets * kSlotsPerBucket != slots) return false;
  return (buckets & ((int64_t{1} << (Log2(buckets) - kLeastHighLog2)) - 1)) == 0;
}

int64_t CompactIndex::SlotsFor(int64_t keys) {
  int64_t unit = kSlotsPerBucket;
  while (MaxKeys(2 * kLeastHigh * unit) < keys) unit *= 2;
  int64_t high = kLeastHigh;
  while (MaxKeys(high * unit) < keys) ++high;
  return high * unit;
}

int64_t CompactIndex::Insert(int64_t key, int64_t row) {
  const uint64_t hash = HashOf(key);
  int64_t number = Home(hash) * kSlotsPerBucket;
  const int64_t end = buckets_ * kSlotsPerBucket;
  // Walking slot by slot is walking bucket by bucket, since buckets fill from the front.
  while (IsTaken(slots_[number])) number = number + 1 == end ? 0 : number + 1;
  const bool was_freed = slots_[number] == kFreed;
  Store(number, SlotOf(hash, row));
  return was_freed ? -1 : 0;
}

void CompactIndex::Move(int64_t key, int64_t from, int64_t to) {
  const uint64_t* const slot = FindSlot(key, from);
  if (slot != nullptr) Store(slot - slots_, SlotOf(HashOf(key), to));
}

int64_t CompactIndex::Erase(int64_t key, int64_t row) {
  const uint64_t* const slot = FindSlot(key, row);
  return slot == nullptr ? 0 : Free(slot - slots_);
}

int64_t CompactIndex::Free(int64_t number) {
  // In a full bucket an empty slot would end the probes for keys behind it.
  const bool full = slots_[number | (kSlotsPerBucket - 1)] != 0;
  Store(number, full ? kFreed : 0);
  return full ? 1 : 0;
}

const uint64_t* CompactIndex::FindSlot(int64_t key, int64_t row) const {
  const uint64_t hash = HashOf(key);
  const uint64_t* found = nullptr;
  Probe(Home(hash), [&](int64_t number, uint64_t slot) {
    if (slot == SlotOf(hash, row)) found = &slots_[number];
    return found != nullptr;
  });
  return found;
}

KeyIndex::Use CompactIndex::CountUse() const {
  KeyIndex::Use use = {};
  for (int64_t number = 0; number < buckets_ * kSlotsPerBucket; ++number) {
    use.taken += IsTaken(slots_[number]);
    use.freed += slots_[number] == kFreed;
  }
  return use;
}

}  // namespace tfhybrid
