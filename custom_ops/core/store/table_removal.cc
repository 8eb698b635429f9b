// Admission and eviction. How waiting keys are counted, and how a table loses rows: the rules find
// them, and the last row takes the place of each.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>

#include "core/compute/row_update.h"
#include "core/store/loading_mark.h"
#include "core/store/table_writer.h"
#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

constexpr size_t kRemovedAhead = 16;

// A frequency and the step that it is of, stored at once.
using CountWord = uint64_t __attribute__((may_alias));

}  // namespace

void TableWriter::CountWaiting(Span<const int64_t> keys, uint64_t step) {
  RowSet set;
  // Room is reserved.
  const Status made = CreateMissing(keys, &set, RowStart::kInitial, RunInline);
  assert(made.ok());
  static_cast<void>(made);
  for (const int64_t number : set.rows) {
    const TableRow row = Row(number);
    const RowHistory next = {CountWith(*row.history, step), static_cast<uint32_t>(step), kNoTime};
    BeforeChange(number, row);
    CountWord word;
    std::memcpy(&word, &next, sizeof(word));
    // At once, so that a leader which is killed has counted it or has not.
    __atomic_store_n(reinterpret_cast<CountWord*>(row.history), word, __ATOMIC_RELEASE);
    TFHYBRID_FAULT_POINT();
  }
}

std::vector<int64_t> TableWriter::FindExpired(const Moment& now, double decay) const {
  std::vector<int64_t> expired;
  if (!HasRule(policy())) return expired;
  const uint64_t slice = now.step & ((uint64_t{1} << policy().slices_log2) - 1);
  std::vector<SliceRow> found, staying;
  index_.VisitSlice(
      slice, policy().slices_log2, [this](int64_t row) { return KeyOf(row); },
      [&](int64_t key, int64_t row) { found.push_back({key, row, {}}); });
  const bool by_norm = policy().min_norm > 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (i + kRemovedAhead < found.size()) {
      const int64_t ahead = found[i + kRemovedAhead].row;
      __builtin_prefetch(HistoryOf(ahead));
      if (by_norm) PrefetchFloats(Row(ahead).embedding, dim_);
    }
    found[i].history = *HistoryOf(found[i].row);
    const double squares =
        by_norm ? Squares(Row(found[i].row).embedding, dim_) * decay * decay : 0.0;
    if (IsExpired(policy(), found[i].history, squares, now)) {
      expired.push_back(found[i].row);
    } else {
      staying.push_back(found[i]);
    }
  }
  if (policy().max_rows > 0) {
    const int64_t surplus = FindSurplus(policy(), now, &staying);
    for (int64_t i = 0; i < surplus; ++i) expired.push_back(staying[static_cast<size_t>(i)].row);
  }
  return expired;
}

// From the last to the first, so that no row that is still to go is moved; and always in the same
// order, so that rows lie the same on every host.
void TableWriter::Remove(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end(), std::greater<>());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kRemovedAhead < rows.size()) {
      if (!in_files()) FetchRow(rows[i + kRemovedAhead]);
      index_.Fetch(KeyOf(rows[i + kRemovedAhead]));
    }
    RemoveRow(rows[i]);
  }
}

Status TableWriter::RemoveKeys(Span<const int64_t> keys) {
  TFHYBRID_RETURN_IF_ERROR(CheckNotFrozen());
  cursors_.Forget();
  const LoadingMark mark(table());
  DropAhead();
  RowSet set;
  Find(keys, &set);
  std::sort(set.rows.begin(), set.rows.end());
  set.rows.erase(std::unique(set.rows.begin(), set.rows.end()), set.rows.end());
  if (!set.rows.empty() && set.rows.front() == KeyIndex::kMissing) set.rows.erase(set.rows.begin());
  Remove(std::move(set.rows));
  return Status::Ok();
}

// What a row begins with in the update that makes it; the update itself then counts.
RowHistory TableWriter::FreshHistory() const {
  const auto step = static_cast<uint32_t>(version() + 1);
  // A waiting key is made and counted at once.
  if (policy().kind == PolicyKind::kWaiting) return {1.0f, step, kNoTime};
  return {static_cast<float>(std::max(1u, policy().admission) - 1), step, kNoTime};
}

void TableWriter::RemoveRow(int64_t row) {
  const int64_t last = rows() - 1;
  if (in_files()) {
    KeepFileRows(row, last);
    tier()->removed_address = *AddressAtRow(row);
    tier()->last_address = *AddressAtRow(last);
  } else {
    BeforeChange(row, Row(row));
  }
  cursors_.MarkRemoved(KeyOf(row));
  removed_by_update_.push_back(KeyOf(row));
  Removal& removal = table()->counters.removal;
  removal.key = KeyOf(row);
  removal.row = static_cast<uint64_t>(row);
  removal.last = static_cast<uint64_t>(last);
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&removal.armed, 1, __ATOMIC_RELEASE);
  FinishRemoval();
  __atomic_store_n(&table()->counters.evicted, table()->counters.evicted + 1, __ATOMIC_RELAXED);
}

// Everything may be done once more by the next leader: the last row lies where it lay until the
// removal is complete.
void TableWriter::FinishRemoval() {
  Removal& removal = table()->counters.removal;
  const auto row = static_cast<int64_t>(removal.row), last = static_cast<int64_t>(removal.last);
  TFHYBRID_FAULT_POINT();
  if (rows() > last) {
    NoteForIndexAhead(removal.key);
    // Where the key is another's already, that was done.
    if (KeyOf(row) == removal.key) index_freed_ += index_.Erase(removal.key, row);
    TFHYBRID_FAULT_POINT();
    if (in_files()) MoveAddress(row, last);
    if (row != last) {
      CopyRow(last, row);
      TFHYBRID_FAULT_POINT();
      NoteForIndexAhead(KeyOf(last));
      index_freed_ += index_.Move(KeyOf(last), last, row);
      TFHYBRID_FAULT_POINT();
    }
    __atomic_store_n(&table()->counters.rows, removal.last, __ATOMIC_RELEASE);
    TFHYBRID_FAULT_POINT();
  }
  __atomic_store_n(&removal.armed, 0, __ATOMIC_RELEASE);
}

void TableWriter::CopyRow(int64_t from, int64_t to) {
  if (!in_files()) {
    const TableRow source = Row(from), target = Row(to);
    CopyFloats(source.embedding, dim_, target.embedding);
    TFHYBRID_FAULT_POINT();
    CopyFloats(source.state, state_floats_, target.state);
  }
  if (policy().kind != PolicyKind::kNone) *HistoryOf(to) = *HistoryOf(from);
  const RowLocator::ChunkOffset at = locator_.Locate(to);
  // Atomic for the index that is made in the background.
  __atomic_store_n(&chunks_[static_cast<size_t>(at.chunk)].keys[at.offset], KeyOf(from),
                   __ATOMIC_RELAXED);
}

}  // namespace tfhybrid
