// TableWriter: the leader's access to a table. Nothing else writes it. One per table and host.
//
// Its parts have interfaces of their own: the TablePage with the counters, the RowChunks that rows
// lie in, the GrowingIndex that names them, the RowRemoval, and the TableSnapshots of those who
// want to know what changes. Beside updates, a TableLoader (core/store/table_loader.h) fills the
// table.
//
// An update goes in steps, so that a full tmpfs changes nothing in any table of a step:
//   Find         the rows of the keys, and which keys have none; on any threads
//   Reserve      chunks and index for the missing; the only step that may fail, nothing visible yet
//   Initialise   bytes of the new rows, on disjoint ranges, on any threads
//   AddRows      makes them rows, and names them in the index
//   UpdateRow    the optimizer, on rows that differ, on any threads (core/update)
//   Publish      version + 1; waiting readers wake
//
// Where the optimizer decays weights, embeddings lie divided by page().decay()
// (core/compute/row_update.h). Whoever writes or reads them through rows in place reckons with
// that; all else here gives and takes what they are worth.
//
// Rows lie close: the last one takes the place of one that is removed, and new ones come after it.
//
// Memory order. A row's bytes, then `rows`, then its index slot, each with release; a reader that
// finds the slot (acquire) therefore sees the count and the row.
//
// Not thread-safe but for the steps that say so. Never usable in a forked child (MADV_DONTFORK).
#ifndef TFHYBRID_CORE_STORE_TABLE_WRITER_H_
#define TFHYBRID_CORE_STORE_TABLE_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/row_policy.h"
#include "core/store/growing_index.h"
#include "core/store/row_chunks.h"
#include "core/store/row_removal.h"
#include "core/store/row_sequence.h"
#include "core/store/table_page.h"
#include "core/store/table_snapshots.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct TableConfig {
  std::string name;
  int64_t dim = 0;
  Initializer initializer;
  uint64_t job_seed = 0;
  RowPolicy policy = {};
  TableShard shard = {};
  std::string files = {};   // the directory on a disk that its rows lie in; empty: in memory
  int64_t cache_bytes = 0;  // of shared memory, for those rows that are in use
};

// What a new row holds besides key and history: initial values, or nothing yet.
enum class RowStart { kInitial, kBlank };

// The rows of some of an update's keys. Scratch: reused from step to step.
struct RowSet {
  std::vector<int64_t> rows;     // by key position
  std::vector<int64_t> missing;  // positions of keys that had no row
};

class TableWriter {
 public:
  // Creates the table's files. Fails with kAlreadyExists if the store has a table of that name.
  static Result<std::unique_ptr<TableWriter>> Create(const std::string& directory, uint64_t token,
                                                     const TableConfig& config);

  // Attaches a table whose leader is dead: the index is made whole, and what was being built is
  // removed. kDataLoss where a load was under way. An update that was begun is not finished here
  // (core/update/recovery.h).
  static Result<std::unique_ptr<TableWriter>> Attach(const std::string& directory, uint64_t token,
                                                     const std::string& table_name);

  // The parts of the table. They are as thread-safe as they say.
  const TablePage& page() const { return page_; }
  RowChunks& chunks() { return chunks_; }
  const RowChunks& chunks() const { return chunks_; }
  GrowingIndex& index() { return index_; }
  TableSnapshots& snapshots() { return snapshots_; }
  const TableSnapshots& snapshots() const { return snapshots_; }
  RowRemoval& removal() { return removal_; }

  std::string name() const { return page_.name(); }
  int64_t dim() const { return page_.dim(); }
  int64_t rows() const { return page_.rows(); }
  uint64_t version() const { return page_.version(); }
  const RowPolicy& policy() const { return page_.policy(); }
  const OptimizerConfig& optimizer() const { return chunks_.optimizer(); }
  // The table of the keys that wait for admission to this one; null where none need to.
  TableWriter* waiting() const { return waiting_; }
  // Borrowed: it must live as long.
  void SetWaiting(TableWriter* waiting) { waiting_ = waiting; }

  // Where there is none yet; rows that exist get fresh state. Setting the same one again is Ok.
  Status SetOptimizer(const OptimizerConfig& config);
  // Between updates; a leader that dies in it leaves a table without an optimizer.
  // REQUIRES: the table is not frozen.
  void ForgetOptimizer();
  // Gives up what is made ahead, in the background, of chunks and index.
  void DropAhead() {
    index_.DropAhead();
    chunks_.DropAhead();
  }

  void Find(Span<const int64_t> keys, RowSet* set,
            const ParallelFor& parallel_for = RunInline) const;
  // Makes room for `rows` rows in all, so that creating them cannot fail.
  Status Reserve(int64_t rows);
  // Rows for which Reserve() cannot fail, because they need nothing new, here or among the waiting.
  int64_t Room() const;
  // Writes the rows of set.missing[begin, end): the first of all missing keys gets row `first`.
  // REQUIRES: room is reserved; first >= rows().
  void Initialise(Span<const int64_t> keys, const RowSet& set, int64_t first, int64_t begin,
                  int64_t end) {
    StartRows(keys, set, first, begin, end, RowStart::kInitial);
  }
  // What the row of a key begins with, as it lies.
  void FreshEmbedding(int64_t key, Span<float> embedding) const;
  // Counts rows that were initialised behind the last, then Index() names them, set by set.
  void AddRows(int64_t count);
  void Index(Span<const int64_t> keys, int64_t first, RowSet* set);
  // Find() to Index() for one set. With RowStart::kBlank the caller then writes embedding and state
  // of all new rows itself. REQUIRES: keys are distinct.
  Status CreateMissing(Span<const int64_t> keys, RowSet* set, RowStart start,
                       const ParallelFor& parallel_for);
  // Counts waiting keys in the update that leads to `step`; doing so once more changes nothing.
  // REQUIRES: room is reserved; the keys are distinct.
  void CountWaiting(Span<const int64_t> keys, uint64_t step);

  // Rows change from the one to the other: readers of a whole version come back afterwards
  // (core/store/row_sequence.h).
  void BeginChange() {
    removal_.ForgetKeys();
    BeginRowChange(&page_.counters());
  }
  void EndChange() { EndRowChange(&page_.counters()); }
  // Tells all readers that the table has reached `version`, and wakes the waiting.
  void PublishVersion(uint64_t version);
  // With what comes with it.
  void PublishUpdate(uint64_t version, double decay, float clip_factor, int64_t event_time);
  // Tells the waiting readers why the update will not come.
  void PublishFailure(const Status& why);
  // Brings the decay back near 1, where it has become too small for float; readings stay what they
  // are, to the bit. Not while the table is frozen, nor while somebody reads it.
  // Fails where rows lie in files that cannot be read or written; the next call then does the rest,
  // and a table whose leader dies before is refused.
  Status NormalizeDecay(const ParallelFor& parallel_for);

  // Copies what the rows of those keys that have one hold, each at the key's position; what is null
  // is left out.
  Status ReadKeys(Span<const int64_t> keys, float* states, RowHistory* histories) const;

 private:
  TableWriter(const std::string& directory, MappedFile table, MappedFile tier, TablePaths paths);

  void StartRows(Span<const int64_t> keys, const RowSet& set, int64_t first, int64_t begin,
                 int64_t end, RowStart start);
  void ScaleRows(int64_t begin, int64_t end);
  Status ScaleFileRows(const ParallelFor& parallel_for);

  const TablePage page_;
  RowChunks chunks_;
  TableSnapshots snapshots_;
  GrowingIndex index_;
  RowRemoval removal_;
  int64_t normalized_ = 0;  // rows of a NormalizeDecay() that failed
  TableWriter* waiting_ = nullptr;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_WRITER_H_
