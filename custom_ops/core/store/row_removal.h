// RowRemoval: how a table loses rows: the rules of eviction find them, and the last row takes the
// place of each.
//
// A leader that is killed meanwhile leaves a Removal, which the next one finishes (Attach).
//
// FindExpired() may be called on any threads, while nothing is removed. Everything else is for the
// thread that holds the table's writer.
#ifndef TFHYBRID_CORE_STORE_ROW_REMOVAL_H_
#define TFHYBRID_CORE_STORE_ROW_REMOVAL_H_

#include <cstdint>
#include <vector>

#include "core/compute/row_policy.h"
#include "core/store/growing_index.h"
#include "core/store/row_chunks.h"
#include "core/store/table_page.h"
#include "core/store/table_snapshots.h"
#include "core/util/status.h"

namespace tfhybrid {

class RowRemoval {
 public:
  // All are borrowed.
  RowRemoval(const TablePage* page, RowChunks* chunks, GrowingIndex* index,
             TableSnapshots* snapshots)
      : page_(page), chunks_(chunks), index_(index), snapshots_(snapshots) {}
  // Finishes the removal that a dead leader began.
  Status Attach();

  // The rows that the rules evict in the update that leads to `now`, and to that decay().
  std::vector<int64_t> FindExpired(const Moment& now, double decay) const;
  // Removes rows. The order in which they come does not matter.
  void Remove(std::vector<int64_t> rows);

  // The keys whose rows were removed since ForgetKeys().
  const std::vector<int64_t>& keys() const { return keys_; }
  void ForgetKeys() { keys_.clear(); }

 private:
  void RemoveRow(int64_t row);
  void Finish();
  void CopyRow(int64_t from, int64_t to);

  const TablePage* const page_;
  RowChunks* const chunks_;
  GrowingIndex* const index_;
  TableSnapshots* const snapshots_;
  std::vector<int64_t> keys_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_REMOVAL_H_
