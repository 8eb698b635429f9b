// TableReader: a table as every rank sees it, the leader's own lookups included: read-only
// mappings, no lock held while rows are copied, and never a write. A key without a row reads its
// initial value, or zeros if the caller says so (UnseenKeys).
//
// Thread-safe. What is mapped grows with the table; a lookup works on one immutable MappedView and
// maps what is new first. Process-safe beside one TableWriter: a row that is being updated during a
// lookup may be read half old, half new; the version protocol of a training step (WaitVersion)
// keeps lookups and updates of the same step apart.
#ifndef TFHYBRID_CORE_STORE_TABLE_READER_H_
#define TFHYBRID_CORE_STORE_TABLE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/bags.h"
#include "core/compute/initializer.h"
#include "core/compute/row_update.h"
#include "core/shm/wait_word.h"
#include "core/store/key_index.h"
#include "core/store/known_rows.h"
#include "core/store/layout.h"
#include "core/store/row_locator.h"
#include "core/store/row_tier.h"
#include "core/store/segment.h"
#include "core/store/table_index.h"
#include "core/util/mutex.h"
#include "core/util/parallel.h"
#include "core/util/row_layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// Bytes are as reserved in shared memory, all segments of the table counted; those of files on a
// disk are told apart.
struct TableStats {
  int64_t rows;
  int64_t version;
  int64_t chunks;
  int64_t index_slots;
  int64_t embedding_bytes;  // keys included
  int64_t state_bytes;
  int64_t history_bytes;
  int64_t index_bytes;
  int64_t bytes;    // all of the above and the table's own page
  int64_t evicted;  // rows that updates removed
  // Where rows lie in files: those, the cache, and rows since the table was made or cleared.
  int64_t file_bytes;
  int64_t cache_bytes;   // part of `bytes`
  int64_t cache_hits;    // that updates found in the cache
  int64_t cache_misses;  // that they read from the file
  int64_t written_rows;  // that were written to the file
};

// Where the rows of a batch's distinct keys lie, as TableReader::Find() found them.
struct FoundRows {
  std::shared_ptr<const void> mapped;  // keeps the rows mapped
  std::vector<const float*> rows;      // of each key; null: it has none
  RowNumbers numbers;                  // of the same rows
};

// The keys of a lookup. If their rows were found before, keys[i] is number numbers[i] of the found
// keys.
struct LookupKeys {
  LookupKeys(Span<const int64_t> of_keys) : keys(of_keys) {}  // NOLINT: implicit by design
  LookupKeys(Span<const int64_t> of_keys, const uint32_t* of_numbers, const FoundRows* of_rows)
      : keys(of_keys), numbers(of_numbers), found(of_rows) {}
  LookupKeys subspan(int64_t first, int64_t count) const {
    return {keys.subspan(first, count), found == nullptr ? nullptr : numbers + first, found};
  }

  Span<const int64_t> keys;
  const uint32_t* numbers = nullptr;
  const FoundRows* found = nullptr;  // null: no row was found yet
};

// What a lookup does about keys without a row. The default is that of training.
struct UnseenKeys {
  bool zeros = false;          // they read zeros, else their initial values
  bool counts = false;         // adds to Counter::kKeysRead and Counter::kUnseenKeys
  uint8_t* has_row = nullptr;  // receives 1 for each key that has a row, else 0
};

class TableReader {
 public:
  // Maps `table_name` of the store in `directory`; kNotFound while the leader has not created it.
  static Result<std::unique_ptr<TableReader>> Open(const std::string& directory, uint64_t token,
                                                   const std::string& table_name);

  const TableShape& shape() const { return segment().shape; }
  std::string name() const;
  int64_t dim() const { return segment().shape.dim; }
  Initializer initializer() const;
  const RowPolicy& policy() const { return segment().shape.policy; }
  OptimizerConfig optimizer() const { return segment().optimizer; }
  // The version at which it began.
  uint64_t optimizer_start() const { return segment().optimizer_start; }
  // The directory and the bytes of memory that it was made with; none where rows lie in memory.
  std::string files() const;
  int64_t cache_bytes() const;
  TableStats Stats() const;
  uint64_t version() const;
  // What a key without a row has decayed to, of its initial value; 1 without weight decay.
  double decay() const;
  // What the gradients of the last update were multiplied by when they were clipped by norm.
  float clip_factor() const;

  // Finds the rows of the distinct keys of a batch, so that its lookups find none again. Finds none
  // where rows lie in files: those are not in memory yet.
  // `ahead`: what FindAhead() returned for the same keys. It is worth nothing where rows have moved
  // since, and a key that had no row then may have one.
  Result<FoundRows> Find(Span<const int64_t> keys, const ParallelFor& parallel_for,
                         RowNumbers ahead = {});
  // Finds them while others may write the table. Where that makes rows unreadable, it finds none.
  RowNumbers FindAhead(Span<const int64_t> keys, const ParallelFor& parallel_for);
  // Copies the embeddings of the keys to where `out` goes, one after the other.
  Status Lookup(const LookupKeys& keys, RowCursor<float> out, const UnseenKeys& unseen = {});
  // Copies them as they lie, without decay, [keys, dim()]; `has_row` receives 1 for each key that
  // has a row, else 0: then it is the initial value.
  Status LookupRaw(Span<const int64_t> keys, float* rows, uint8_t* has_row);
  // What such a row is to be multiplied by, and an initial value beside it.
  Decays decays() const { return {RowDecay(), InitialDecay()}; }
  // Writes 1 for each key that has a row, else 0.
  Status FindKeys(Span<const int64_t> keys, uint8_t* found);
  // Combines those of bags [first, last) of `keys`, without a copy of each row.
  Status LookupBags(const LookupKeys& keys, const Bags& bags, int64_t first, int64_t last,
                    RowCursor<float> out, const UnseenKeys& unseen = {});
  // To an array [keys, dim()].
  Status Lookup(Span<const int64_t> keys, float* out, const UnseenKeys& unseen = {}) {
    return Lookup(keys, RowCursor<float>(out, RowLayout::Array(dim()), 0), unseen);
  }

  // Ok once `version` updates have been applied. Waits in slices, and between them fails with what
  // the leader reported, or with what `check_alive` returns.
  Status WaitVersion(uint64_t version, const std::function<Status()>& check_alive,
                     int slice_ms = kWaitSliceMs) const;

  // Whether WaitVersion would return at once, with success or failure.
  bool Reached(uint64_t version) const;

  // The reader's half of the sequence lock of the rows (core/store/row_sequence.h): an even number
  // where they are not being changed, and whether it is that number still, after rows were copied.
  uint64_t Sequence() const;
  bool SequenceIs(uint64_t before) const;
  // Waits until the change that is under way has ended, or about `timeout_ms` have passed; says
  // which.
  bool WaitForQuiet(int timeout_ms) const;

  // Copies rows [first, first + count) in creation order: keys and embeddings. REQUIRES: they
  // exist; nothing updates.
  Status ReadRows(int64_t first, int64_t count, int64_t* keys, float* embeddings);

  // Rows whose embedding holds a NaN. Reads all of them.
  Result<int64_t> CountNanRows();

 private:
  // What is mapped at one moment. Immutable once published; old ones live until their last lookup
  // ends.
  struct MappedView {
    uint64_t generation;
    std::shared_ptr<const MappedFile> index_file;
    KeyIndex index;        // where rows lie in memory
    CompactIndex compact;  // where they lie in files
    std::vector<std::shared_ptr<const MappedFile>> chunks;
    std::vector<const float*> embeddings;    // first row of each chunk
    std::vector<const int64_t*> keys;        // likewise, in files
    std::vector<const uint64_t*> addresses;  // instead, where rows lie in files
    int64_t capacity;                        // rows in the mapped chunks
    std::shared_ptr<const RowTier> tier;     // null where rows lie in memory, or there are none
    uint64_t tier_generation = 0;
  };

  TableReader(const std::string& directory, MappedFile table, MappedFile tier, TablePaths paths);

  const TableSegment& segment() const {
    return *reinterpret_cast<const TableSegment*>(table_.data());
  }
  // A view that holds everything the table had when this was called.
  Result<std::shared_ptr<const MappedView>> CurrentView();
  Result<std::shared_ptr<const MappedView>> Extend(const MappedView* old) const;
  Status MapIndex(MappedView* view) const;
  Status MapChunks(MappedView* view, int64_t count) const;
  Status OpenRows(MappedView* view) const;
  Status ReadFileRows(const MappedView& view, int64_t first, int64_t count,
                      float* embeddings) const;
  // Calls `take(row, key)` for each key, in order; the row is null where the key has none.
  template <typename Take>
  Status Visit(const LookupKeys& keys, const Take& take);
  // The rows of keys that exist now and are mapped, of at most KeyIndex::kGroup keys.
  Status FindRows(const MappedView& view, Span<const int64_t> keys, const float** rows) const;
  // The same as numbers.
  Status FindNumbers(const MappedView& view, Span<const int64_t> keys, int64_t* numbers) const;
  // Those of the keys whose number is kMissing.
  Status FindMissing(const MappedView& view, Span<const int64_t> keys, int64_t* numbers) const;
  // FindNumbers() for any number of keys.
  Status FindAll(const MappedView& view, Span<const int64_t> keys, int64_t* numbers) const;
  template <typename Take>
  Status VisitFile(Span<const int64_t> keys, const Take& take);
  bool in_files() const { return tier_.mapped(); }
  const TierSegment& tier() const { return *reinterpret_cast<const TierSegment*>(tier_.data()); }
  // What lies beside the keys of a chunk: an embedding each, or an address.
  int64_t ChunkFloats() const { return in_files() ? kAddressFloats : dim(); }
  // Stored embeddings are divided by RowDecay(). Initial values are multiplied by both.
  float RowDecay() const;
  float InitialDecay() const;
  // Rows that exist now and are mapped.
  int64_t MappedRows(const MappedView& view) const;
  // Makes a row number that is not known to be good into one that `view` can read, or kMissing, or
  // an error.
  Status ResolveNew(const MappedView& view, int64_t* row) const;
  const float* RowAt(const MappedView& view, int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return view.embeddings[static_cast<size_t>(at.chunk)] + at.offset * dim();
  }
  // Null where the number is KeyIndex::kMissing.
  const float* RowOrNull(const MappedView& view, int64_t row) const {
    return row < 0 ? nullptr : RowAt(view, row);
  }
  IndexKind index_kind() const { return in_files() ? IndexKind::kCompact : IndexKind::kKeys; }
  // False too of a row that is not mapped: it came after the lookup had begun.
  bool HasKey(const MappedView& view, int64_t row, int64_t key) const {
    if (row >= view.capacity) return false;
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return __atomic_load_n(view.keys[static_cast<size_t>(at.chunk)] + at.offset,
                           __ATOMIC_RELAXED) == key;
  }
  const uint64_t* AddressAtRow(const MappedView& view, int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return view.addresses[static_cast<size_t>(at.chunk)] + at.offset;
  }

  const std::string directory_;
  const MappedFile table_;
  const MappedFile tier_;  // not mapped where rows lie in memory
  const TablePaths paths_;
  const RowLocator locator_;
  Mutex mutex_;
  std::shared_ptr<const MappedView> view_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_READER_H_
