#include "core/store/table_index.h"

#include <algorithm>

#include "core/store/layout.h"
#include "core/store/segment.h"

namespace tfhybrid {
namespace {

int64_t SlotBytes(IndexKind kind) {
  return static_cast<int64_t>(kind == IndexKind::kKeys ? sizeof(IndexSlot) : sizeof(uint64_t));
}

bool IsSize(IndexKind kind, int64_t slots) {
  if (kind == IndexKind::kCompact) return CompactIndex::IsSize(slots);
  return slots >= KeyIndex::kSlotsPerBucket && (slots & (slots - 1)) == 0;
}

}  // namespace

int64_t IndexBytes(IndexKind kind, int64_t slots) {
  return kIndexSlotsOffset + slots * SlotBytes(kind);
}

int64_t MaxKeysOf(IndexKind kind, int64_t slots) {
  return kind == IndexKind::kKeys ? KeyIndex::MaxKeys(slots) : CompactIndex::MaxKeys(slots);
}

// A KeyIndex grows to twice its size, unless most of its slots have only been freed. A CompactIndex
// is to cost at most 12 bytes a key just after it has grown, too: it grows to the next size.
int64_t NextSlots(IndexKind kind, int64_t slots, int64_t keys) {
  if (kind == IndexKind::kCompact) return std::max(slots, CompactIndex::SlotsFor(keys + keys / 24));
  const bool suffices = keys <= KeyIndex::MaxKeys(slots) / 2;
  return std::max(KeyIndex::SlotsFor(keys), suffices ? slots : 2 * slots);
}

Status CheckIndex(const std::string& path, const MappedFile& file, IndexKind kind) {
  const int64_t slots = SlotCount(file);
  const int64_t max_slots = (file.size() - kIndexSlotsOffset) / SlotBytes(kind);
  if (slots > 0 && slots <= max_slots && IsSize(kind, slots)) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, " is damaged: it has ", slots,
                       " slots, which is no size of an index or more than the ", max_slots,
                       " that fit");
}

int64_t SlotCount(const MappedFile& file) {
  return static_cast<int64_t>(reinterpret_cast<const IndexSegment*>(file.data())->slots);
}

CompactIndex CompactIndexOf(const MappedFile& file) {
  return CompactIndex(Span<uint64_t>(
      reinterpret_cast<uint64_t*>(file.mutable_data() + kIndexSlotsOffset), SlotCount(file)));
}

TableIndex::TableIndex(const MappedFile& file, IndexKind kind) : kind_(kind) {
  if (kind == IndexKind::kKeys) {
    keys_ = KeyIndex(SlotsOf(file));
  } else {
    compact_ = CompactIndexOf(file);
  }
}

void TableIndex::FindRoom(Span<const int64_t> keys, int64_t* buckets) const {
  if (kind_ == IndexKind::kKeys) return keys_.FindRoom(keys, buckets);
  for (const int64_t key : keys) compact_.Fetch(key);
}

int64_t TableIndex::Move(int64_t key, int64_t from, int64_t to) {
  if (kind_ == IndexKind::kKeys) return keys_.Set(key, to);
  compact_.Move(key, from, to);
  return 0;
}

}  // namespace tfhybrid
