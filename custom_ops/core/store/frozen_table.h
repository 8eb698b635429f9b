// FrozenTable: rows of a table as they were at one moment, to be read during training: all of
// them, or those that had changed since a moment before.
//
// Freezing copies nothing. A row is copied aside just before it changes for the first time
// afterwards, by the thread that is about to change it, unless it has been read by then. So an
// update costs a copy per row that it is the first to touch, and memory grows with those rows until
// their chunk is read.
//
// It is read in parts. A part is a run of chunks with at most as many rows as a full chunk, so
// threads that read different parts never meet in a chunk.
//
// Used in the leader's process only. Thread-safe: the threads of an update call Keep(), for each
// row one thread at a time. Any thread calls Read(), for each part one thread. A row that was kept
// is read from its copy. Any other row is read under its chunk's mutex, which Keep() takes before
// the row changes. So no row changes while it is read.
#ifndef TFHYBRID_CORE_STORE_FROZEN_TABLE_H_
#define TFHYBRID_CORE_STORE_FROZEN_TABLE_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/store/changed_rows.h"
#include "core/store/row_locator.h"
#include "core/store/row_tier.h"
#include "core/store/table_row.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

class FrozenTable {
 public:
  // Where the rows of a chunk lie. They stay there as long as the table lives.
  struct ChunkData {
    const int64_t* keys;
    const float* embeddings;
    const float* states;          // null where the optimizer has none
    const RowHistory* histories;  // null where the table keeps none
    // Addresses of rows that lie in files (core/store/row_tier.h); null where they lie in memory.
    const uint64_t* addresses = nullptr;
  };

  // The table's state when it was frozen.
  struct Snapshot {
    int64_t rows;
    uint64_t version;
    double decay;  // stored embeddings are divided by it
    double initial_decay;
    int64_t event_time;
  };

  // `changed` says which rows; null for all. `removed`: keys whose rows were removed since. `tier`
  // is null where rows lie in memory.
  FrozenTable(const Snapshot& snapshot, const RowLocator& locator, int64_t dim,
              int64_t state_floats, const std::vector<ChunkData>& sources,
              std::shared_ptr<const RowTier> tier, const ChangedRows* changed,
              std::vector<int64_t> removed);

  int64_t table_rows() const { return snapshot_.rows; }
  uint64_t version() const { return snapshot_.version; }
  // What a key without a row has decayed to, of its initial value.
  double decay() const { return snapshot_.decay * snapshot_.initial_decay; }
  int64_t event_time() const { return snapshot_.event_time; }
  int64_t dim() const { return dim_; }
  int64_t state_floats() const { return state_floats_; }
  bool has_history() const { return has_history_; }
  // Keys that may have had a row before the first change that it has, and had none then. Some may
  // have one again.
  const std::vector<int64_t>& removed() const { return removed_; }
  // Whether it has all rows of the table.
  bool whole() const { return whole_; }

  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t PartRows(int64_t part) const { return parts_[static_cast<size_t>(part)].rows; }

  // Before `row`, which is that of `key` and lies at `now`, changes.
  void Keep(int64_t row, int64_t key, const TableRow& now);
  // The same where it lies in a cache or a file, from where it is read. Where that fails, reading
  // its part fails.
  void KeepFileRow(int64_t row, int64_t key, const RowHistory* history);

  // Where the rows of a part go, one after the other.
  struct Target {
    int64_t* key;
    float* embedding;
    float* state;
    RowHistory* history;
  };
  // Copies the rows of a part as they were, in the order in which they lay, with embeddings as they
  // are worth. Each part once. Fails where rows lie in files that cannot be read.
  Status Read(int64_t part, Target out);

 private:
  // State of 64 rows, one bit each.
  struct Word {
    uint64_t frozen;   // is to be read
    uint64_t changed;  // has been kept; guarded by the chunk's mutex
  };
  struct KeptRow {
    int64_t key;
    RowHistory history;
  };
  struct FrozenChunk {
    ChunkData source;
    std::vector<Word> words;
    Mutex mutex;
    int64_t read TFHYBRID_GUARDED_BY(mutex) = 0;                          // rows before it are read
    std::unordered_map<int64_t, size_t> kept TFHYBRID_GUARDED_BY(mutex);  // by offset in the chunk
    std::vector<KeptRow> rows TFHYBRID_GUARDED_BY(mutex);                 // those
    std::vector<float> floats TFHYBRID_GUARDED_BY(mutex);                 // of the kept rows
    Status failure TFHYBRID_GUARDED_BY(mutex);                            // of keeping one
  };
  // The chunks [first, end).
  struct ChunkRange {
    size_t first;
    size_t end;
    int64_t rows;
  };
  int64_t FreezeChunk(int64_t first_row, int64_t rows, const ChangedRows* changed,
                      FrozenChunk* chunk);
  // Makes room for a row that is to be kept, and returns where its floats go; null where nobody
  // will read it, or it has been kept.
  float* RoomFor(FrozenChunk* chunk, int64_t offset, int64_t key, const RowHistory* history)
      TFHYBRID_REQUIRES(chunk->mutex);
  Status ReadChunk(FrozenChunk* chunk, Target* out);
  Status CopyRow(const FrozenChunk& chunk, int64_t offset, bool changed, float* record,
                 Target* out) const TFHYBRID_REQUIRES(chunk.mutex);

  const Snapshot snapshot_;
  const RowLocator locator_;
  const int64_t dim_;
  const int64_t state_floats_;
  const bool whole_;
  const bool has_history_;
  const std::vector<int64_t> removed_;
  const std::shared_ptr<const RowTier> tier_;
  std::vector<std::unique_ptr<FrozenChunk>> chunks_;
  std::vector<ChunkRange> parts_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_FROZEN_TABLE_H_
