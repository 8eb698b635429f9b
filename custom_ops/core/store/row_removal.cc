#include "core/store/row_removal.h"

#include <algorithm>
#include <functional>

#include "core/compute/row_update.h"
#include "core/store/row_sequence.h"
#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

constexpr size_t kRemovedAhead = 16;

}  // namespace

Status RowRemoval::Attach() {
  const Removal& removal = page_->counters().removal;
  if (removal.armed == 0) return Status::Ok();
  const auto rows = static_cast<uint64_t>(page_->rows());
  // Either the last row lies there still, or it was the last step that was missing.
  if (removal.row > removal.last || removal.last > rows || removal.last + 1 < rows) {
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(), "' is damaged: row ",
                         removal.row, " of ", rows, " is being removed, and ", removal.last,
                         " is the last");
  }
  Finish();
  return Status::Ok();
}

std::vector<int64_t> RowRemoval::FindExpired(const Moment& now, double decay) const {
  const RowPolicy& policy = page_->policy();
  std::vector<int64_t> expired;
  if (!HasRule(policy)) return expired;
  const uint64_t slice = now.step & ((uint64_t{1} << policy.slices_log2) - 1);
  std::vector<SliceRow> found, staying;
  index_->VisitSlice(slice, policy.slices_log2,
                     [&](int64_t key, int64_t row) { found.push_back({key, row, {}}); });
  const bool by_norm = policy.min_norm > 0.0;
  const int64_t dim = page_->dim();
  for (size_t i = 0; i < found.size(); ++i) {
    if (i + kRemovedAhead < found.size()) {
      const int64_t ahead = found[i + kRemovedAhead].row;
      __builtin_prefetch(chunks_->HistoryOf(ahead));
      if (by_norm) PrefetchFloats(chunks_->Row(ahead).embedding, dim);
    }
    found[i].history = *chunks_->HistoryOf(found[i].row);
    const double squares =
        by_norm ? Squares(chunks_->Row(found[i].row).embedding, dim) * decay * decay : 0.0;
    if (IsExpired(policy, found[i].history, squares, now)) {
      expired.push_back(found[i].row);
    } else {
      staying.push_back(found[i]);
    }
  }
  if (policy.max_rows > 0) {
    const int64_t surplus = FindSurplus(policy, now, &staying);
    for (int64_t i = 0; i < surplus; ++i) expired.push_back(staying[static_cast<size_t>(i)].row);
  }
  return expired;
}

// From the last to the first, so that no row that is still to go is moved; and always in the same
// order, so that rows lie the same on every host.
void RowRemoval::Remove(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end(), std::greater<>());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kRemovedAhead < rows.size()) {
      const int64_t ahead = rows[i + kRemovedAhead];
      if (!chunks_->files().used()) chunks_->FetchRow(ahead);
      index_->Fetch(chunks_->KeyOf(ahead));
    }
    RemoveRow(rows[i]);
  }
  if (!rows.empty()) NoteMoves(&page_->counters());
}

void RowRemoval::RemoveRow(int64_t row) {
  const int64_t last = page_->rows() - 1, key = chunks_->KeyOf(row);
  snapshots_->BeforeRemoval(row, last);
  if (chunks_->files().used()) chunks_->files().BeginMove(row, last);
  keys_.push_back(key);
  TableCounters& counters = page_->counters();
  Removal& removal = counters.removal;
  removal.key = key;
  removal.row = static_cast<uint64_t>(row);
  removal.last = static_cast<uint64_t>(last);
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&removal.armed, 1, __ATOMIC_RELEASE);
  Finish();
  __atomic_store_n(&counters.evicted, counters.evicted + 1, __ATOMIC_RELAXED);
}

// Everything may be done once more by the next leader: the last row lies where it lay until the
// removal is complete.
void RowRemoval::Finish() {
  TableCounters& counters = page_->counters();
  Removal& removal = counters.removal;
  const auto row = static_cast<int64_t>(removal.row), last = static_cast<int64_t>(removal.last);
  TFHYBRID_FAULT_POINT();
  if (page_->rows() > last) {
    // Where the key is another's already, that was done.
    if (chunks_->KeyOf(row) == removal.key) index_->Erase(removal.key, row);
    TFHYBRID_FAULT_POINT();
    if (chunks_->files().used()) chunks_->files().Move(row, last);
    if (row != last) {
      CopyRow(last, row);
      TFHYBRID_FAULT_POINT();
      index_->Move(chunks_->KeyOf(last), last, row);
      TFHYBRID_FAULT_POINT();
    }
    __atomic_store_n(&counters.rows, removal.last, __ATOMIC_RELEASE);
    TFHYBRID_FAULT_POINT();
  }
  __atomic_store_n(&removal.armed, 0, __ATOMIC_RELEASE);
}

void RowRemoval::CopyRow(int64_t from, int64_t to) {
  if (!chunks_->files().used()) {
    const TableRow source = chunks_->Row(from), target = chunks_->Row(to);
    CopyFloats(source.embedding, source.dim, target.embedding);
    TFHYBRID_FAULT_POINT();
    CopyFloats(source.state, source.state_floats, target.state);
  }
  if (page_->policy().kind != PolicyKind::kNone) {
    *chunks_->HistoryOf(to) = *chunks_->HistoryOf(from);
  }
  chunks_->SetKey(to, chunks_->KeyOf(from));
}

}  // namespace tfhybrid
