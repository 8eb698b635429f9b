// TableWriter: the leader's hand on a table, the only one that writes. One per table and host.
//
// An update goes in four steps, so that a full tmpfs changes nothing in any table of a step:
//   Prepare    find the rows, count the missing, reserve chunks and index for them    may fail;
//   nothing visible changes CreateRows give each missing key a row that holds its initial value
//   Apply      run the optimizer on disjoint ranges of the rows, on any threads
//   Publish    version + 1; waiting readers wake
//
// Memory order. A row's bytes, then `rows`, then its index slot, each with release; a reader that
// finds the slot (acquire) therefore sees the count and the row. A chunk is counted after it was
// reserved and before a row lies in it. An index generation is complete before its number is
// stored; the old file is unlinked afterwards and lives on in the mappings of its readers.
//
// Not thread-safe but for Apply on disjoint ranges. Never usable in a forked child (MADV_DONTFORK).
#ifndef TFHYBRID_CORE_STORE_TABLE_WRITER_H_
#define TFHYBRID_CORE_STORE_TABLE_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/unique_keys.h"
#include "core/store/key_index.h"
#include "core/store/layout.h"
#include "core/store/row_locator.h"
#include "core/store/segment.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct TableConfig {
  std::string name;
  int64_t dim = 0;
  Initializer initializer;
  uint64_t job_seed = 0;
};

// The rows of one update's keys. Scratch: reused from step to step.
struct RowSet {
  std::vector<int64_t> rows;     // by key position
  std::vector<int64_t> missing;  // positions of keys that had no row
};

class TableWriter {
 public:
  // Creates the table's files. Fails with kAlreadyExists if the store has a table of that name.
  static Result<std::unique_ptr<TableWriter>> Create(const std::string& directory, uint64_t token,
                                                     const TableConfig& config);

  std::string name() const;
  int64_t dim() const { return table()->shape.dim; }
  int64_t rows() const { return static_cast<int64_t>(table()->counters.rows); }
  uint64_t version() const { return table()->counters.version; }
  const OptimizerConfig& optimizer() const { return optimizer_; }

  // Once; rows that exist get fresh state. Setting the same one again is Ok.
  Status SetOptimizer(const OptimizerConfig& config);

  // Makes room for `rows` rows in all, so that creating them cannot fail.
  Status Reserve(int64_t rows);
  // REQUIRES: keys are distinct.
  Status Prepare(Span<const int64_t> keys, RowSet* set);
  // REQUIRES: Prepare() with the same keys came last.
  void CreateRows(Span<const int64_t> keys, RowSet* set, const ParallelFor& parallel_for);
  // Applies gradients[i * dim] * scales[i] to the row of position i, for i in [begin, end). `step`
  // comes from PrepareStep(optimizer(), learning rate, version() + 1).
  void Apply(const OptimizerStep& step, const RowSet& set, const float* gradients,
             const float* scales, int64_t begin, int64_t end);
  void Publish();
  // Tells the waiting readers why the update will not come.
  void PublishFailure(const std::string& message);

  // Writes embeddings, and state if `states` is not null (else fresh state), over rows old and new;
  // the last of equal keys wins. For loading; not while a step runs.
  Status WriteRows(Span<const int64_t> keys, const float* embeddings, const float* states,
                   const ParallelFor& parallel_for);
  // Forgets all rows; the chunks stay, for the rows to come. For loading; not while a step runs.
  Status Clear();
  // Continues the count of a saved table. REQUIRES: only while loading.
  void SetVersion(uint64_t version);
  // Copies the optimizer state of rows [first, first + count).
  Status ReadState(int64_t first, int64_t count, float* states) const;

 private:
  struct Chunk {
    MappedFile rows;
    MappedFile state;  // not mapped where the optimizer has none
    int64_t* keys;
    float* embeddings;
    float* states;
  };

  TableWriter(MappedFile table, TablePaths paths);

  TableSegment* table() const { return reinterpret_cast<TableSegment*>(table_.mutable_data()); }
  int64_t StateFloats() const { return StateSlots(optimizer_.kind) * dim(); }
  Status ReserveRows(int64_t rows);
  Status ReserveIndex(int64_t keys);
  Status AddChunk();
  Status AddState(int64_t number, Chunk* chunk);
  Status BuildIndex(int64_t slots);
  void InitialiseRows(Span<const int64_t> keys, const RowSet& set, int64_t begin, int64_t end);

  float* EmbeddingAt(int64_t row) const {
    const RowLocator::Place place = locator_.Locate(row);
    return chunks_[static_cast<size_t>(place.chunk)].embeddings + place.offset * dim();
  }
  float* StateAt(int64_t row) const {
    if (StateFloats() == 0) return nullptr;
    const RowLocator::Place place = locator_.Locate(row);
    return chunks_[static_cast<size_t>(place.chunk)].states + place.offset * StateFloats();
  }

  const MappedFile table_;
  const TablePaths paths_;
  const RowLocator locator_;
  OptimizerConfig optimizer_;
  std::vector<Chunk> chunks_;
  MappedFile index_file_;
  KeyIndex index_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_WRITER_H_
