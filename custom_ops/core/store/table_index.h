// TableIndex: the index that a table has: a KeyIndex where its rows lie in memory, and a
// CompactIndex where they lie in files. Both lie in an IndexSegment.
//
// `has_key(row, key)` says whether a row is that of a key; a KeyIndex does not ask.
#ifndef TFHYBRID_CORE_STORE_TABLE_INDEX_H_
#define TFHYBRID_CORE_STORE_TABLE_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/shm/mapped_file.h"
#include "core/store/compact_index.h"
#include "core/store/key_index.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

enum class IndexKind { kKeys, kCompact };

// Sizes of an index, by its slots.
int64_t IndexBytes(IndexKind kind, int64_t slots);
int64_t MaxKeysOf(IndexKind kind, int64_t slots);
// Returns the size of the next index of a table that has `slots` now and will have `keys`.
int64_t NextSlots(IndexKind kind, int64_t slots, int64_t keys);
Status CheckIndex(const std::string& path, const MappedFile& file, IndexKind kind);
int64_t SlotCount(const MappedFile& file);
CompactIndex CompactIndexOf(const MappedFile& file);

class TableIndex {
 public:
  TableIndex() = default;
  TableIndex(const MappedFile& file, IndexKind kind);

  template <typename HasKey>
  int64_t Find(int64_t key, const HasKey& has_key) const {
    return kind_ == IndexKind::kKeys ? keys_.Find(key) : compact_.Find(key, has_key);
  }
  template <typename HasKey>
  void FindBatch(Span<const int64_t> keys, Span<int64_t> rows, const HasKey& has_key) const;
  void Fetch(int64_t key) const {
    if (kind_ == IndexKind::kKeys) {
      keys_.Fetch(key);
    } else {
      compact_.Fetch(key);
    }
  }

  // These return by how much the number of freed slots changed.
  int64_t Insert(int64_t key, int64_t row) {
    return kind_ == IndexKind::kKeys ? keys_.Insert(key, row) : compact_.Insert(key, row);
  }
  // Inserts `count` keys with the rows from `first` on, in their order, and calls `inserted(i)`
  // after each. `key_at(i)` is the i-th key. REQUIRES: the keys are distinct.
  template <typename KeyAt, typename Inserted>
  int64_t InsertBatch(int64_t count, int64_t first, const KeyAt& key_at, const Inserted& inserted);
  // KeyIndex::InsertNew() and PartOf(). REQUIRES: IndexKind::kKeys.
  bool InsertNew(Span<const int64_t> keys, int64_t first, uint8_t begin, uint8_t end,
                 uint8_t* parts) {
    return keys_.InsertNew(keys, first, begin, end, parts);
  }
  uint8_t PartOf(int64_t key) const { return keys_.PartOf(key); }
  // As InsertBatch() where an index is being made beside updates: if rows may move, they may be met
  // twice, so what is added is set right by Correct().
  template <typename KeyAt>
  void AddBatch(int64_t count, int64_t first, const KeyAt& key_at, bool may_move);
  int64_t Move(int64_t key, int64_t from, int64_t to);
  int64_t Erase(int64_t key, int64_t row) {
    return kind_ == IndexKind::kKeys ? keys_.Erase(key) : compact_.Erase(key, row);
  }
  // Where `row` is that of the key, or kMissing. A CompactIndex forgets all keys of the same hash,
  // and calls `erased(row)` for what they named: Complete() is to follow for those and for the key.
  template <typename Erased>
  int64_t Correct(int64_t key, int64_t row, const Erased& erased) {
    if (kind_ == IndexKind::kCompact) return compact_.EraseHash(key, erased);
    return row == KeyIndex::kMissing ? keys_.Erase(key) : keys_.Set(key, row);
  }
  int64_t Complete(int64_t key, int64_t row) {
    const bool complete = kind_ == IndexKind::kKeys || compact_.Names(key, row);
    return complete ? 0 : compact_.Insert(key, row);
  }

  template <typename KeyOf, typename Visit>
  void VisitSlice(uint64_t slice, uint32_t slices_log2, const KeyOf& key_of,
                  const Visit& visit) const {
    if (kind_ == IndexKind::kKeys) {
      keys_.VisitSlice(slice, slices_log2, visit);
    } else {
      compact_.VisitSlice(slice, slices_log2, key_of, visit);
    }
  }
  KeyIndex::Use CountUse() const {
    return kind_ == IndexKind::kKeys ? keys_.CountUse() : compact_.CountUse();
  }

 private:
  // Makes ready to insert a group of keys; `buckets` are those of a KeyIndex.
  void FindRoom(Span<const int64_t> keys, int64_t* buckets) const;

  IndexKind kind_ = IndexKind::kKeys;
  KeyIndex keys_;
  CompactIndex compact_;
};

template <typename HasKey>
void TableIndex::FindBatch(Span<const int64_t> keys, Span<int64_t> rows,
                           const HasKey& has_key) const {
  if (kind_ == IndexKind::kKeys) return keys_.FindBatch(keys, rows);
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (i + kSlotsAhead < keys.size()) compact_.Fetch(keys[i + kSlotsAhead]);
    rows[i] = compact_.Find(keys[i], has_key);
  }
}

template <typename KeyAt, typename Inserted>
int64_t TableIndex::InsertBatch(int64_t count, int64_t first, const KeyAt& key_at,
                                const Inserted& inserted) {
  int64_t freed = 0;
  int64_t keys[KeyIndex::kGroup], buckets[KeyIndex::kGroup];
  for (int64_t start = 0; start < count; start += KeyIndex::kGroup) {
    const int64_t size = std::min(KeyIndex::kGroup, count - start);
    for (int64_t i = 0; i < size; ++i) keys[i] = key_at(start + i);
    FindRoom(Span<const int64_t>(keys, size), buckets);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = first + start + i;
      freed += kind_ == IndexKind::kKeys ? keys_.InsertFrom(buckets[i], keys[i], row)
                                         : compact_.Insert(keys[i], row);
      inserted(start + i);
    }
  }
  return freed;
}

template <typename KeyAt>
void TableIndex::AddBatch(int64_t count, int64_t first, const KeyAt& key_at, bool may_move) {
  if (!may_move || kind_ == IndexKind::kCompact) {
    InsertBatch(count, first, key_at, [](int64_t) {});
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (i + kSlotsAhead < count) keys_.Fetch(key_at(i + kSlotsAhead));
    keys_.Set(key_at(i), first + i);
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_INDEX_H_
