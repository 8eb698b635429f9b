// FrozenTable: the rows of a table as they were at one moment, to be read while training goes on.
//
// Freezing copies nothing. A row is copied aside just before it changes for the first time
// afterwards, by the thread that is about to change it, unless it has been read by then. So an
// update costs a copy per row that it is the first to touch, and memory grows with those rows until
// their chunk is read.
//
// Of the leader's process alone. Thread-safe: Keep() is called by the threads of an update, a row
// by one thread at a time; Read() by any thread, a chunk by one. A row that was kept is never read
// where it lies, and one that was not is read under its chunk's mutex, which Keep() takes before
// the row changes: so no read meets a change.
#ifndef TFHYBRID_CORE_STORE_FROZEN_TABLE_H_
#define TFHYBRID_CORE_STORE_FROZEN_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/store/row_locator.h"
#include "core/store/table_row.h"

namespace tfhybrid {

class FrozenTable {
 public:
  // Where the rows of a chunk lie. They stay there as long as the table lives.
  struct Source {
    const int64_t* keys;
    const float* embeddings;
    const float* states;  // null where the optimizer has none
  };

  FrozenTable(int64_t rows, uint64_t version, const RowLocator& locator, int64_t dim,
              int64_t state_floats, const std::vector<Source>& sources);

  int64_t rows() const { return rows_; }
  uint64_t version() const { return version_; }
  int64_t dim() const { return dim_; }
  int64_t state_floats() const { return state_floats_; }
  const RowLocator& locator() const { return locator_; }

  // Before `row`, which lies at `now`, changes.
  void Keep(int64_t row, const TableRow& now);

  // Copies rows [first, first + count) as they were. Each row can be read once.
  // REQUIRES: they exist; those before them in their chunk were read before.
  void Read(int64_t first, int64_t count, int64_t* keys, float* embeddings, float* states);

 private:
  struct Chunk {
    Source source;
    std::mutex mutex;
    std::vector<bool> changed;                 // guarded by mutex
    int64_t read = 0;                          // rows before it are read; guarded by mutex
    std::unordered_map<int64_t, size_t> kept;  // by place in the chunk; guarded by mutex
    std::vector<float> floats;                 // of the kept rows; guarded by mutex
  };

  void ReadWithin(Chunk* chunk, int64_t first, int64_t count, int64_t* keys, float* embeddings,
                  float* states);
  void CopyRow(const Chunk& chunk, int64_t place, float* embedding, float* state) const;

  const int64_t rows_;
  const uint64_t version_;
  const RowLocator locator_;
  const int64_t dim_;
  const int64_t state_floats_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_FROZEN_TABLE_H_
