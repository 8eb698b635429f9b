// TableWriter: the leader's access to a table. Nothing else writes it. One per table and host.
//
// An update goes in steps, so that a full tmpfs changes nothing in any table of a step:
//   Find         the rows of the keys, and which keys have none; on any threads
//   Reserve      chunks and index for the missing; the only step that may fail, nothing visible yet
//   Initialise   bytes of the new rows, on disjoint ranges, on any threads
//   AddRows      makes them rows, and names them in the index
//   UpdateRow    the optimizer, on rows that differ, on any threads (core/update)
//   Publish      version + 1; waiting readers wake
//
// Where the optimizer decays weights, embeddings lie divided by decay()
// (core/compute/row_update.h). Whoever writes or reads them through rows in place reckons with
// that; all else here gives and takes what they are worth.
//
// Rows lie close: the last one takes the place of one that is removed, and new ones come after it.
// A leader that is killed meanwhile leaves a Removal, which the next one finishes (Attach).
//
// Memory order. A row's bytes, then `rows`, then its index slot, each with release; a reader that
// finds the slot (acquire) therefore sees the count and the row. A chunk is counted after it was
// reserved and before a row lies in it. An index generation is complete before its number is
// stored; the old file is unlinked afterwards and lives on in the mappings of its readers.
//
// Not thread-safe but for the steps that say so. Never usable in a forked child (MADV_DONTFORK).
#ifndef TFHYBRID_CORE_STORE_TABLE_WRITER_H_
#define TFHYBRID_CORE_STORE_TABLE_WRITER_H_

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/row_policy.h"
#include "core/compute/unique_keys.h"
#include "core/store/change_cursors.h"
#include "core/store/frozen_table.h"
#include "core/store/key_index.h"
#include "core/store/layout.h"
#include "core/store/row_cache.h"
#include "core/store/row_locator.h"
#include "core/store/row_sequence.h"
#include "core/store/row_tier.h"
#include "core/store/segment.h"
#include "core/store/table_index.h"
#include "core/store/table_row.h"
#include "core/util/parallel.h"
#include "core/util/prefetch.h"
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

  std::string name() const;
  int64_t dim() const { return dim_; }
  int64_t rows() const {
    // Atomic for the index that is made in the background: it reads keys of the rows it sees here.
    return static_cast<int64_t>(__atomic_load_n(&table()->counters.rows, __ATOMIC_ACQUIRE));
  }
  uint64_t version() const { return table()->counters.version; }
  const OptimizerConfig& optimizer() const { return optimizer_; }
  const RowPolicy& policy() const { return table()->shape.policy; }
  // The latest event time that an update came with.
  int64_t event_time() const { return table()->counters.event_time; }
  // The table of the keys that wait for admission to this one; null where none need to.
  TableWriter* waiting() const { return waiting_; }
  // Borrowed: it must live as long.
  void SetWaiting(TableWriter* waiting) { waiting_ = waiting; }
  // Stored embeddings are divided by this, and initial values of new rows are multiplied by it.
  double decay() const { return table()->counters.decay; }
  double initial_decay() const { return table()->counters.initial_decay; }

  // Floats of a row's optimizer state.
  int64_t StateFloats() const { return state_floats_; }

  // Whether rows lie in files on a disk. Row() is then of rows that Bring() has brought.
  bool in_files() const { return tier_.mapped(); }
  // Ok unless rows lie there, which have no room for the state of another optimizer.
  Status CheckNoFileRows() const;
  // Before rows are changed, new ones among them: where they lie in files, brings them to memory,
  // and keeps them there until the next call. Fails with all rows as they are.
  // REQUIRES: room is reserved; the rows are distinct.
  Status Bring(const std::vector<int64_t>& rows, const ParallelFor& parallel_for);

  // Where there is none yet; rows that exist get fresh state. Setting the same one again is Ok.
  Status SetOptimizer(const OptimizerConfig& config);
  // For a table of a dead leader: an error if a page of rows holds what no update left there.
  Status CheckPages() const;
  // Between updates; a leader that dies in it leaves a table without an optimizer.
  // REQUIRES: not frozen().
  void ForgetOptimizer();
  // The version at which the optimizer began.
  uint64_t optimizer_start() const { return table()->optimizer_start; }
  void SetOptimizerStart(uint64_t version) { table()->optimizer_start = version; }

  void Find(Span<const int64_t> keys, RowSet* set) const;
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

  TableRow Row(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    const MappedChunk& chunk = chunks_[static_cast<size_t>(at.chunk)];
    RowHistory* const history = chunk.histories != nullptr ? chunk.histories + at.offset : nullptr;
    if (chunk.addresses != nullptr) {
      float* const record = cache_->Record(chunk.addresses[at.offset]);
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

  // Counts waiting keys in the update that leads to `step`; doing so once more changes nothing.
  // REQUIRES: room is reserved; the keys are distinct.
  void CountWaiting(Span<const int64_t> keys, uint64_t step);
  // The rows that the rules evict in the update that leads to `now`, and to that decay().
  std::vector<int64_t> FindExpired(const Moment& now, double decay) const;
  // Removes rows. The order in which they come does not matter.
  void Remove(std::vector<int64_t> rows);
  // Rows change from the one to the other: readers of a whole version come back afterwards
  // (core/store/row_sequence.h).
  void BeginChange() {
    removed_by_update_.clear();
    BeginRowChange(&table()->counters);
  }
  // The keys whose rows were removed since then.
  const std::vector<int64_t>& removed_by_update() const { return removed_by_update_; }
  void EndChange() { EndRowChange(&table()->counters); }
  // Tells all readers that the table has reached `version`, and wakes the waiting.
  void PublishVersion(uint64_t version);
  // With what comes with it.
  void PublishUpdate(uint64_t version, double decay, float clip_factor, int64_t event_time);
  // Brings decay() back near 1, where it has become too small for float; readings stay what they
  // are, to the bit. Not while the table is frozen, nor while somebody reads it.
  // Fails where rows lie in files that cannot be read or written; the next call then does the rest,
  // and a table whose leader dies before is refused.
  Status NormalizeDecay(const ParallelFor& parallel_for);
  // Tells the waiting readers why the update will not come.
  void PublishFailure(const Status& why);

  // Writes embeddings, and state and histories if they are not null (else fresh state, and a
  // history as of a row that was updated just now), over rows old and new; the last of equal keys
  // wins. For loading; not while a step runs.
  Status WriteRows(Span<const int64_t> keys, const float* embeddings, const float* states,
                   const RowHistory* histories, const ParallelFor& parallel_for);
  // Removes the rows of those keys that have one. For loading; not while a step runs.
  Status RemoveKeys(Span<const int64_t> keys);
  // Forgets all rows; the chunks stay, for the rows to come. For loading; not while a step runs.
  Status Clear();
  // Sets the decay of keys that have no row. For loading, after Clear().
  void SetInitialDecay(double decay);
  // Sets the event time. For loading.
  void SetEventTime(int64_t time);
  // The rows as they are now, to be read during updates, until Thaw(). Between two updates.
  // Where there is a cursor of that name and `only_changed` is asked for, those that changed since
  // it began. The cursor begins anew; other cursors stay. Fails while the table is frozen already.
  Result<std::shared_ptr<FrozenTable>> Freeze(const std::string& cursor, bool only_changed);
  // Gives the cursor back what Freeze() took from it, if the table is frozen: the reader could not
  // use it.
  void ReturnChanges();
  void Thaw() {
    frozen_ = nullptr;
    taken_ = {};
  }
  const std::shared_ptr<FrozenTable>& frozen() const { return frozen_; }
  // Begins a cursor: notes from now on which rows change, until rows are loaded or cleared.
  void TrackChanges(const std::string& cursor) { cursors_.Track(cursor, rows()); }
  // Before an update changes `row`, which lies at `now`. On any threads, a row on one.
  void BeforeChange(int64_t row, const TableRow& now) const {
    cursors_.Mark(row);
    if (frozen_ != nullptr) frozen_->Keep(row, KeyOf(row), now);
  }
  // Copies what the rows of those keys that have one hold, each at the key's position; what is null
  // is left out.
  Status ReadKeys(Span<const int64_t> keys, float* states, RowHistory* histories) const;
  // Copies the optimizer state, or the histories, of rows [first, first + count). A table without
  // any copies nothing.
  Status ReadState(int64_t first, int64_t count, float* states) const;
  Status ReadHistory(int64_t first, int64_t count, RowHistory* histories) const;

 private:
  struct MappedChunk {
    MappedFile rows;
    MappedFile state;    // not mapped where the optimizer has none
    MappedFile history;  // not mapped where the table keeps none
    int64_t* keys;
    float* embeddings;  // null where rows lie in files
    float* states;
    RowHistory* histories;
    uint64_t* addresses;  // where rows lie in files; else null
  };
  // What lies beside the keys of a chunk: an embedding each, or an address.
  int64_t ChunkFloats() const { return in_files() ? kAddressFloats : dim_; }
  void FindRowsIn(MappedChunk* chunk, int64_t rows) const;
  // Copies the state of a row.
  Status ReadStateOf(int64_t row, float* record, float* state) const;

  // Forgets the optimizer in this process, and removes the files of its state.
  void DropState();

  // An index generation that is not published yet, and holds the first `rows` rows.
  struct IndexAhead {
    MappedFile file;
    TableIndex index;
    int64_t freed = 0;  // slots
    int64_t rows = 0;
  };

  TableWriter(const std::string& directory, MappedFile table, MappedFile tier, TablePaths paths);

  TableSegment* table() const { return reinterpret_cast<TableSegment*>(table_.mutable_data()); }
  // table_tier.cc
  TierSegment* tier() const { return reinterpret_cast<TierSegment*>(tier_.mutable_data()); }
  int64_t RecordFloats() const { return dim_ + state_floats_; }
  std::string TierPath() const;
  TierGeneration GenerationOf(uint64_t number) const;
  int64_t CacheRows() const;
  uint64_t* AddressAtRow(int64_t row) const {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    return chunks_[static_cast<size_t>(at.chunk)].addresses + at.offset;
  }
  AddressAt Addresses() const {
    return [this](int64_t row) { return AddressAtRow(row); };
  }
  Status CheckRecords();
  Status DuplicateRecord(int64_t row) const;
  Status CheckExchanged(const std::vector<int64_t>& rows) const;
  void KeepFileRows(int64_t row, int64_t last) const;
  void MoveAddress(int64_t row, int64_t last);
  Status NormalizeFileRows(const ParallelFor& parallel_for);
  void ScaleRows(int64_t begin, int64_t end);
  Status MakeTier();
  Status ReserveRecords(int64_t first, int64_t end) const;
  void DropTier();
  Status AttachTier();
  Status CheckFileOptimizer(const OptimizerConfig& config) const;

  void FindOn(Span<const int64_t> keys, RowSet* set, const ParallelFor& parallel_for) const;
  // Buffers of WriteBlock().
  struct WriteScratch {
    UniqueKeys unique;
    std::vector<int64_t> sources;  // by number of a distinct key: the position of its last row
    RowSet set;
  };
  Status WriteBlock(Span<const int64_t> keys, const float* embeddings, const float* states,
                    const RowHistory* histories, const ParallelFor& parallel_for,
                    WriteScratch* scratch);
  void StartRows(Span<const int64_t> keys, const RowSet& set, int64_t first, int64_t begin,
                 int64_t end, RowStart start);
  Status CheckNotFrozen() const;
  Status CheckRange(int64_t first, int64_t count) const;
  // table_removal.cc
  RowHistory FreshHistory() const;
  void RemoveRow(int64_t row);
  void FinishRemoval();
  void CopyRow(int64_t from, int64_t to);
  SegmentIdentity IdentityOf(SegmentKind kind, int64_t chunk) const {
    return {kind, table()->header.token, static_cast<uint64_t>(chunk)};
  }
  // table_growth.cc
  Status AddChunk();
  Result<MappedChunk> MakeChunk(int64_t number) const;
  Status AddState(int64_t number, MappedChunk* chunk) const;
  Status AddHistory(int64_t number, MappedChunk* chunk) const;
  IndexKind index_kind() const { return in_files() ? IndexKind::kCompact : IndexKind::kKeys; }
  // Also of a number that a damaged index names.
  bool HasKey(int64_t row, int64_t key) const {
    return row < locator_.Capacity(static_cast<int64_t>(chunks_.size())) && KeyOf(row) == key;
  }
  int64_t FindRow(int64_t key) const {
    return index_.Find(key, [this](int64_t row, int64_t its) { return HasKey(row, its); });
  }
  void FindRows(Span<const int64_t> keys, Span<int64_t> rows) const {
    index_.FindBatch(keys, rows, [this](int64_t row, int64_t its) { return HasKey(row, its); });
  }
  int64_t SlotsNeeded(int64_t keys) const;
  void NoteForIndexAhead(int64_t key);
  Status ReserveIndex(int64_t keys);
  Status BuildIndex(int64_t slots);
  Result<IndexAhead> MakeIndex(int64_t slots) const;
  void IndexRows(int64_t end, IndexAhead* made) const;
  void PublishIndex(IndexAhead made);
  void GrowAhead(int64_t created);
  void AdoptIndexAhead();
  void DropIndexAhead();
  void DropAhead();

  // table_attach.cc
  Status AttachOptimizer();
  Status AttachChunk(int64_t number);
  Status AttachIndex();
  Status AttachRemoval();
  Status CompleteIndex();
  Result<std::vector<int64_t>> RowsNotInIndex() const;
  void RemoveUnfinished() const;

  const std::string directory_;
  const MappedFile table_;
  const MappedFile tier_;  // not mapped where rows lie in memory
  const TablePaths paths_;
  const RowLocator locator_;
  const int64_t dim_;
  int64_t state_floats_ = 0;
  OptimizerConfig optimizer_;
  mutable std::mutex chunks_mutex_;  // held to add to chunks_, and to read it in the background
  std::vector<MappedChunk> chunks_;
  MappedFile index_file_;
  TableIndex index_;
  int64_t index_freed_ = 0;                  // slots
  std::unique_ptr<RowCache> cache_;          // null where rows lie in memory, or there are none
  std::shared_ptr<const RowTier> row_tier_;  // likewise
  int64_t normalized_ = 0;                   // rows of a NormalizeDecay() that failed
  TableWriter* waiting_ = nullptr;
  std::shared_ptr<FrozenTable> frozen_;  // null while nobody saves
  ChangeCursors cursors_;
  std::string taken_from_;  // the cursor that Freeze() took changes from
  Changes taken_;           // those
  std::vector<int64_t> removed_by_update_;
  // Keys that were removed, moved or came while an index was being made that may have missed it.
  std::vector<int64_t> index_ahead_notes_;
  // Last: what they run uses all of the above, and their destructors wait for it.
  std::future<Result<MappedChunk>> next_chunk_;
  std::future<Result<IndexAhead>> next_index_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_WRITER_H_
