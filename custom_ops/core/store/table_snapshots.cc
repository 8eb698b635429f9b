#include "core/store/table_snapshots.h"

#include <utility>
#include <vector>

namespace tfhybrid {

Result<std::shared_ptr<FrozenTable>> TableSnapshots::Freeze(const std::string& cursor,
                                                            bool only_changed) {
  TFHYBRID_RETURN_IF_ERROR(CheckNotFrozen());
  // Decay changes all rows at every step.
  const Changes* const changes = cursors_.Find(cursor);
  const bool partly =
      changes != nullptr && only_changed && chunks_->optimizer().weight_decay == 0.0;
  const FrozenTable::Snapshot snapshot = {page_->rows(), page_->version(), page_->decay(),
                                          page_->initial_decay(), page_->event_time()};
  frozen_ = std::make_shared<FrozenTable>(
      snapshot, page_->locator(), page_->dim(), chunks_->state_floats(), chunks_->Sources(),
      chunks_->files().reader(), partly ? changes->rows.get() : nullptr,
      partly ? changes->removed : std::vector<int64_t>());
  taken_from_ = cursor;
  taken_ = cursors_.Take(cursor, page_->rows());
  return frozen_;
}

void TableSnapshots::Thaw() {
  frozen_ = nullptr;
  taken_ = {};
}

void TableSnapshots::ReturnChanges() {
  cursors_.Return(taken_from_, std::move(taken_));
  taken_ = {};
}

Status TableSnapshots::CheckNotFrozen() const {
  if (frozen_ == nullptr) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "Table '", page_->name(),
                       "' is being saved: wait until its checkpoint is complete");
}

// What a checkpoint still wants of two rows in files is read before their addresses change. It
// reads the disk, which may fail: then the checkpoint fails, and the update does not.
void TableSnapshots::BeforeRemoval(int64_t row, int64_t last) {
  if (!chunks_->files().used()) {
    BeforeChange(row, chunks_->Row(row));
  } else {
    cursors_.Mark(row);
    for (const int64_t changed : {row, last}) {
      if (frozen_ == nullptr) break;
      frozen_->KeepFileRow(changed, chunks_->KeyOf(changed), chunks_->HistoryOf(changed));
    }
  }
  cursors_.MarkRemoved(chunks_->KeyOf(row));
}

}  // namespace tfhybrid
