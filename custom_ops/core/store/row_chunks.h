// RowChunks: the leader's access to the rows of a table: the chunks that they lie in, with their
// optimizer state and histories, and what the optimizer is.
//
// The next chunk is made ahead of time, by a thread of its own: reserving memory takes a third of a
// millisecond per megabyte, and as much again for huge pages. A table that fills up faster than
// that waits for it. A chunk is counted after it was reserved and before a row lies in it.
//
// Not thread-safe, but: what is const may be called on any threads, while no chunk is added, and
// KeysOfChunks() beside everything.
#ifndef TFHYBRID_CORE_STORE_ROW_CHUNKS_H_
#define TFHYBRID_CORE_STORE_ROW_CHUNKS_H_

#include <cstdint>
#include <future>
#include <vector>

#include "core/compute/optimizer.h"
#include "core/compute/row_policy.h"
#include "core/shm/mapped_file.h"
#include "core/store/file_rows.h"
#include "core/store/frozen_table.h"
#include "core/store/row_locator.h"
#include "core/store/table_page.h"
#include "core/store/table_row.h"
#include "core/util/mutex.h"
#include "core/util/prefetch.h"
#include "core/util/status.h"

namespace tfhybrid {

// Segments with fewer bytes are made on the spot, faster than a thread is started.
inline constexpr int64_t kWorthAThread = int64_t{1} << 20;

class RowChunks {
 public:
  // `tier` is not mapped where the table lies in memory. The page is borrowed.
  RowChunks(const TablePage* page, MappedFile tier);
  // Opens the chunks of a dead leader, by the optimizer that the table's page names.
  Status Attach();
  // Removes chunks and state that a dead leader made and never counted. REQUIRES: Attach().
  void RemoveUnfinished() const;

  const OptimizerConfig& optimizer() const { return optimizer_; }
  // Floats of a row's optimizer state.
  int64_t state_floats() const { return state_floats_; }
  FileRows& files() { return files_; }
  const FileRows& files() const { return files_; }
  // Rows that there are chunks for.
  int64_t Capacity() const { return locator_.Capacity(count()); }

  TableRow Row(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    const RowChunk& chunk = chunks_[static_cast<size_t>(at.chunk)];
    RowHistory* const history = chunk.histories != nullptr ? chunk.histories + at.offset : nullptr;
    if (chunk.addresses != nullptr) {
      float* const record = files_.Record(chunk.addresses[at.offset]);
      return {record, state_floats_ > 0 ? record + dim_ : nullptr, dim_, state_floats_, history};
    }
    return {chunk.embeddings + at.offset * dim_,
            state_floats_ > 0 ? chunk.states + at.offset * state_floats_ : nullptr, dim_,
            state_floats_, history};
  }
  int64_t KeyOf(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return chunks_[static_cast<size_t>(at.chunk)].keys[at.offset];
  }
  void SetKey(int64_t row, int64_t key) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    // Atomic for the index that is made in the background.
    __atomic_store_n(&chunks_[static_cast<size_t>(at.chunk)].keys[at.offset], key,
                     __ATOMIC_RELAXED);
  }
  RowHistory* HistoryOf(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return chunks_[static_cast<size_t>(at.chunk)].histories + at.offset;
  }
  void FetchRow(int64_t number) const {
    const TableRow row = Row(number);
    PrefetchFloats(row.embedding, row.dim);
    PrefetchFloats(row.state, row.state_floats);
    if (row.history != nullptr) __builtin_prefetch(row.history);
  }
  // The first row of each chunk, and of what lies beside it.
  std::vector<FrozenTable::ChunkData> Sources() const;
  // The keys of each chunk. On any thread.
  std::vector<const int64_t*> KeysOfChunks() const;

  // Copies the optimizer state, or the histories, of rows [first, first + count). A table without
  // any copies nothing.
  Status ReadState(int64_t first, int64_t count, float* states) const;
  Status ReadHistory(int64_t first, int64_t count, RowHistory* histories) const;

  // Makes chunks for `rows` rows in all.
  Status Reserve(int64_t rows);
  // Makes the next chunk, in the background, where the rows come near the end of the last.
  // `created`: rows that were just added.
  void GrowAhead(int64_t created);
  void DropAhead();

  // Gives all rows fresh state of that optimizer, or takes it from them. REQUIRES: nothing was made
  // ahead; no rows lie in files.
  Status SetOptimizer(const OptimizerConfig& config);
  void DropState();

 private:
  struct RowChunk {
    MappedFile rows;
    MappedFile state;    // not mapped where the optimizer has none
    MappedFile history;  // not mapped where the table keeps none
    int64_t* keys;
    float* embeddings;  // null where rows lie in files
    float* states;
    RowHistory* histories;
    uint64_t* addresses;  // where rows lie in files; else null
  };
  int64_t count() const { return static_cast<int64_t>(chunks_.size()); }
  // What lies beside the keys of a chunk: an embedding each, or an address.
  int64_t ChunkFloats() const { return files_.used() ? kAddressFloats : dim_; }
  uint64_t* AddressAtRow(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return chunks_[static_cast<size_t>(at.chunk)].addresses + at.offset;
  }
  Status AttachOptimizer();
  Status AttachChunk(int64_t number);
  Status CheckRange(int64_t first, int64_t count) const;
  void FindRowsIn(RowChunk* chunk, int64_t rows) const;
  Status AddChunk();
  // In the background, too.
  Result<RowChunk> MakeChunk(int64_t number) const;
  Status AddState(int64_t number, RowChunk* chunk) const;
  Status AddHistory(int64_t number, RowChunk* chunk) const;

  const TablePage* const page_;
  const RowLocator locator_;
  const int64_t dim_;
  FileRows files_;
  OptimizerConfig optimizer_;
  int64_t state_floats_ = 0;
  mutable Mutex mutex_;  // held to add to chunks_, and to read it in the background
  std::vector<RowChunk> chunks_;
  // Last: what it runs uses all of the above, and its destructor waits for it.
  std::future<Result<RowChunk>> next_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_CHUNKS_H_
