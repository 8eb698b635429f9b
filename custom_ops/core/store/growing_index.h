// GrowingIndex: the index of a table as its leader writes it, which grows by generations.
//
// A generation is complete before its number is stored; the old file is unlinked afterwards and
// lives on in the mappings of its readers. The next one is made ahead of time, by a thread of its
// own, since filling it takes about 15 ns per key; it is adopted when the one in use is full. Keys
// that were removed, moved or came meanwhile are noted, because that thread may have missed it.
//
// Not thread-safe, but: what is const may be called on any threads, while nothing is inserted.
#ifndef TFHYBRID_CORE_STORE_GROWING_INDEX_H_
#define TFHYBRID_CORE_STORE_GROWING_INDEX_H_

#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "core/shm/mapped_file.h"
#include "core/store/known_rows.h"
#include "core/store/row_chunks.h"
#include "core/store/table_index.h"
#include "core/store/table_page.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class GrowingIndex {
 public:
  // Page and chunks are borrowed.
  GrowingIndex(const TablePage* page, const RowChunks* chunks)
      : page_(page), chunks_(chunks), kind_(chunks->files().index_kind()) {}
  // Makes a generation of the smallest size, of the rows that there are now, and takes it into use.
  Status Restart();
  // Opens the generation in use of a dead leader.
  Status Attach();
  // Removes the generations that a dead leader made or was about to remove. REQUIRES: Attach().
  void RemoveUnfinished() const;
  // Names the rows that a dead leader had counted and not named yet. Nothing else may be wrong.
  // REQUIRES: Attach(); no removal is under way.
  Status Complete();

  // The row of a key, or KeyIndex::kMissing.
  int64_t Find(int64_t key) const {
    return index_.Find(key, [this](int64_t row, int64_t its) { return HasKey(row, its); });
  }
  void FindBatch(Span<const int64_t> keys, Span<int64_t> rows) const {
    index_.FindBatch(keys, rows, [this](int64_t row, int64_t its) { return HasKey(row, its); });
  }
  void Fetch(int64_t key) const { index_.Fetch(key); }
  // What lookups of this process have found in it.
  const std::shared_ptr<KnownRows>& known_rows() const { return known_rows_; }
  // Calls `visit(key, row)` for the rows of a slice of the index.
  template <typename Visit>
  void VisitSlice(uint64_t slice, uint32_t slices_log2, const Visit& visit) const {
    index_.VisitSlice(
        slice, slices_log2, [this](int64_t row) { return chunks_->KeyOf(row); }, visit);
  }

  // Names `count` rows from `first` on; `key_at(i)` is the i-th key. Calls `inserted(i)` after
  // each. REQUIRES: room is reserved; the keys are distinct and have no row.
  template <typename KeyAt, typename Inserted>
  void Insert(int64_t count, int64_t first, const KeyAt& key_at, const Inserted& inserted) {
    freed_ += index_.InsertBatch(count, first, key_at, [&](int64_t i) {
      if (!notes_.empty()) Note(key_at(i));
      inserted(i);
    });
  }
  // The same on several threads: parts[i] is PartOf(key i), and is changed. Where a key has a row,
  // or occurs twice, no row is named, and it returns false. REQUIRES: room is reserved;
  // TakesParts().
  bool InsertNew(Span<const int64_t> keys, int64_t first, uint8_t* parts,
                 const ParallelFor& parallel_for);
  uint8_t PartOf(int64_t key) const { return index_.PartOf(key); }
  bool TakesParts() const { return kind_ == IndexKind::kKeys && freed_ == 0 && !next_.valid(); }
  void Erase(int64_t key, int64_t row) {
    Note(key);
    freed_ += index_.Erase(key, row);
  }
  void Move(int64_t key, int64_t from, int64_t to) {
    Note(key);
    freed_ += index_.Move(key, from, to);
  }

  // Keys that the generation in use has room for.
  int64_t Room() const { return MaxKeysOf(kind_, SlotCount(file_)) - freed_; }
  // Makes room for `keys` keys in all.
  Status Reserve(int64_t keys);
  // Makes the next generation, in the background, where the one in use will be full soon.
  // `created`: rows that were just added.
  void GrowAhead(int64_t created);
  void DropAhead();

 private:
  // A generation that is not in use yet, and holds the first `rows` rows.
  struct IndexAhead {
    MappedFile file;
    TableIndex index;
    int64_t freed = 0;  // slots
    int64_t rows = 0;
  };

  // Also of a number that a damaged index names.
  bool HasKey(int64_t row, int64_t key) const {
    return row < chunks_->Capacity() && chunks_->KeyOf(row) == key;
  }
  uint64_t generation() const { return page_->counters().index_generation; }
  int64_t SlotsNeeded(int64_t keys) const { return NextSlots(kind_, SlotCount(file_), keys); }
  void Note(int64_t key) {
    if (next_.valid()) notes_.push_back(key);
  }
  Status Build(int64_t slots);
  bool InsertParts(Span<const int64_t> keys, int64_t first, uint8_t* parts,
                   const ParallelFor& parallel_for);
  void EraseNew(Span<const int64_t> keys, int64_t first);
  // In the background, too: beside the thread that creates rows and adds chunks.
  Result<IndexAhead> Make(int64_t slots) const;
  void AddRows(int64_t end, IndexAhead* made) const;
  void Publish(IndexAhead made);
  void AdoptAhead();
  Result<std::vector<int64_t>> RowsNotNamed() const;

  const TablePage* const page_;
  const RowChunks* const chunks_;
  const IndexKind kind_;
  MappedFile file_;
  TableIndex index_;
  const std::shared_ptr<KnownRows> known_rows_ = std::make_shared<KnownRows>();
  int64_t freed_ = 0;           // slots
  std::vector<int64_t> notes_;  // keys that the next generation may have wrong
  // Last: what it runs uses all of the above, and its destructor waits for it.
  std::future<Result<IndexAhead>> next_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_GROWING_INDEX_H_
