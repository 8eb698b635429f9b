// TableLoader: writes, removes and forgets rows of a table beside its updates, as a checkpoint or a
// file says. Ends all cursors of changed rows. A leader that dies meanwhile leaves a table that the
// next one refuses (core/store/loading_mark.h).
//
// Borrows the writer, which nobody else uses meanwhile; not while a step runs.
#ifndef TFHYBRID_CORE_STORE_TABLE_LOADER_H_
#define TFHYBRID_CORE_STORE_TABLE_LOADER_H_

#include <cstdint>
#include <vector>

#include "core/compute/row_policy.h"
#include "core/compute/unique_keys.h"
#include "core/store/table_writer.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class TableLoader {
 public:
  explicit TableLoader(TableWriter* table) : table_(table) {}

  // Writes embeddings, and state and histories if they are not null (else fresh state, and a
  // history as of a row that was updated just now), over rows old and new; the last of equal keys
  // wins.
  Status WriteRows(Span<const int64_t> keys, const float* embeddings, const float* states,
                   const RowHistory* histories, const ParallelFor& parallel_for);
  // Removes the rows of those keys that have one.
  Status RemoveKeys(Span<const int64_t> keys);
  // Forgets all rows; the chunks stay, for the rows to come.
  Status Clear();
  // Sets the decay of keys that have no row. After Clear().
  void SetInitialDecay(double decay);
  void SetEventTime(int64_t time);

 private:
  // The rows of a block of keys, by position of the key.
  struct LoadedRows {
    const float* embeddings;
    const float* states;          // null: fresh
    const RowHistory* histories;  // null: all `now`, as of an update just now
    float scale;                  // of embeddings as they lie
    RowHistory now;
  };
  // Ok if rows may be loaded now; the cursors are ended then.
  Status Begin();
  // Writes rows behind the last, and returns true, if there is room and no key has a row or occurs
  // twice. Most loads are of such keys, and this looks at each of them once.
  bool Append(Span<const int64_t> keys, const LoadedRows& rows, const ParallelFor& parallel_for);
  void WriteRow(int64_t number, const LoadedRows& rows, int64_t source) const;
  Status WriteBlock(Span<const int64_t> keys, const LoadedRows& rows,
                    const ParallelFor& parallel_for);

  TableWriter* const table_;
  // Buffers of WriteBlock().
  UniqueKeys unique_;
  std::vector<int64_t> sources_;  // by number of a distinct key: the position of its last row
  RowSet set_;
  std::vector<uint8_t> parts_;  // of Append(): of the index, by position of the key
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_LOADER_H_
