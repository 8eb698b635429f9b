// TableSnapshots: the readers that want to know how a table changes: one that has it frozen, and
// the cursors of those that ask for what changed since they last looked.
//
// BeforeChange() may be called on any threads, for each row on one at a time. Everything else is
// for the thread that holds the table's writer, between two updates.
#ifndef TFHYBRID_CORE_STORE_TABLE_SNAPSHOTS_H_
#define TFHYBRID_CORE_STORE_TABLE_SNAPSHOTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/store/change_cursors.h"
#include "core/store/frozen_table.h"
#include "core/store/row_chunks.h"
#include "core/store/table_page.h"
#include "core/store/table_row.h"
#include "core/util/status.h"

namespace tfhybrid {

class TableSnapshots {
 public:
  // Page and chunks are borrowed.
  TableSnapshots(const TablePage* page, const RowChunks* chunks) : page_(page), chunks_(chunks) {}

  // The rows as they are now, to be read during updates, until Thaw(). Where there is a cursor of
  // that name and `only_changed` is asked for, those that changed since it began. The cursor begins
  // anew; other cursors stay. Fails while the table is frozen already.
  Result<std::shared_ptr<FrozenTable>> Freeze(const std::string& cursor, bool only_changed);
  void Thaw();
  const std::shared_ptr<FrozenTable>& frozen() const { return frozen_; }
  Status CheckNotFrozen() const;

  // Begins a cursor: notes from now on which rows change, until rows are loaded or cleared.
  void Track(const std::string& cursor) { cursors_.Track(cursor, page_->rows()); }
  // Gives the cursor back what Freeze() took from it, if the table is frozen: the reader could not
  // use it.
  void ReturnChanges();
  // Ends all cursors: what has changed is not known any longer.
  void ForgetChanges() { cursors_.Forget(); }

  // Before an update changes `row`, which lies at `now`. On any threads, a row on one.
  void BeforeChange(int64_t row, const TableRow& now) const {
    cursors_.Mark(row);
    if (frozen_ != nullptr) frozen_->Keep(row, chunks_->KeyOf(row), now);
  }
  // Before a row is removed, whose place `last` takes.
  void BeforeRemoval(int64_t row, int64_t last);

 private:
  const TablePage* const page_;
  const RowChunks* const chunks_;
  std::shared_ptr<FrozenTable> frozen_;  // null while nobody saves
  ChangeCursors cursors_;
  std::string taken_from_;  // the cursor that Freeze() took changes from
  Changes taken_;           // those
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_SNAPSHOTS_H_
