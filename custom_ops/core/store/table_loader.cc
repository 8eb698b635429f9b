#include "core/store/table_loader.h"

#include <algorithm>
#include <utility>

#include "core/compute/row_update.h"
#include "core/store/loading_mark.h"
#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

// Loaded at a time: what finds equal keys then fits into a core's second cache.
constexpr int64_t kLoadedKeys = 16384;
// Appended at a time: so many are worth waking threads twice.
constexpr int64_t kAppendedKeys = 131072;

}  // namespace

Status TableLoader::Begin() {
  TFHYBRID_RETURN_IF_ERROR(table_->snapshots().CheckNotFrozen());
  table_->snapshots().ForgetChanges();
  return Status::Ok();
}

Status TableLoader::WriteRows(Span<const int64_t> keys, const float* embeddings,
                              const float* states, const RowHistory* histories,
                              const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(Begin());
  const LoadingMark mark(table_->page().segment());
  const int64_t dim = table_->dim(), state_floats = table_->chunks().state_floats();
  // Nor more at a time than the cache of a table in files holds.
  const FileRows& files = table_->chunks().files();
  const int64_t max_keys =
      files.used() ? std::clamp<int64_t>(files.CacheRows(dim + state_floats), 1, kLoadedKeys)
                   : kLoadedKeys;
  const TablePage& page = table_->page();
  const RowHistory now = {static_cast<float>(std::max(1u, page.policy().admission)),
                          static_cast<uint32_t>(page.version()), page.event_time()};
  const float scale = 1.0f / static_cast<float>(page.decay());
  const auto rows_from = [&](int64_t first) -> LoadedRows {
    return {embeddings + first * dim, states == nullptr ? nullptr : states + first * state_floats,
            histories == nullptr ? nullptr : histories + first, scale, now};
  };
  int64_t first = 0;
  for (int64_t count; first < keys.size(); first += count) {
    count = std::min(kAppendedKeys, keys.size() - first);
    if (!Append(keys.subspan(first, count), rows_from(first), parallel_for)) break;
  }
  for (int64_t count; first < keys.size(); first += count) {
    count = std::min(max_keys, keys.size() - first);
    const Span<const int64_t> block = keys.subspan(first, count);
    TFHYBRID_RETURN_IF_ERROR(WriteBlock(block, rows_from(first), parallel_for));
  }
  return Status::Ok();
}

Status TableLoader::WriteBlock(Span<const int64_t> keys, const LoadedRows& rows,
                               const ParallelFor& parallel_for) {
  unique_.Reset(keys.size());
  sources_.resize(static_cast<size_t>(keys.size()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    sources_[static_cast<size_t>(unique_.Number(keys[i]))] = i;
  }
  TFHYBRID_RETURN_IF_ERROR(
      table_->CreateMissing(unique_.keys(), &set_, RowStart::kBlank, parallel_for));
  parallel_for(unique_.size(), table_->dim(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      WriteRow(set_.rows[static_cast<size_t>(i)], rows, sources_[static_cast<size_t>(i)]);
    }
  });
  return Status::Ok();
}

bool TableLoader::Append(Span<const int64_t> keys, const LoadedRows& rows,
                         const ParallelFor& parallel_for) {
  GrowingIndex& index = table_->index();
  const int64_t first = table_->rows();
  if (!index.TakesParts() || keys.size() > table_->Room()) return false;
  parts_.resize(static_cast<size_t>(keys.size()));
  parallel_for(keys.size(), table_->dim(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parts_[static_cast<size_t>(i)] = index.PartOf(keys[i]);
      table_->chunks().SetKey(first + i, keys[i]);
      WriteRow(first + i, rows, i);
    }
  });
  const auto count_rows = [&](int64_t count) {
    StoreRelease(&table_->page().counters().rows, static_cast<uint64_t>(count));
    TFHYBRID_FAULT_POINT();
  };
  count_rows(first + keys.size());
  bool all_new = false;
  try {
    all_new = index.InsertNew(keys, first, parts_.data(), parallel_for);
  } catch (...) {
    count_rows(first);
    throw;
  }
  if (!all_new) count_rows(first);
  return all_new;
}

void TableLoader::WriteRow(int64_t number, const LoadedRows& rows, int64_t source) const {
  const RowChunks& chunks = table_->chunks();
  const TableRow row = chunks.Row(number);
  CopyFloats(rows.embeddings + source * row.dim, row.dim, row.embedding);
  ScaleRow(rows.scale, row.dim, row.embedding);
  TFHYBRID_FAULT_POINT();
  if (rows.states == nullptr) {
    InitializeState(chunks.optimizer(), row.dim, row.state);
  } else {
    CopyFloats(rows.states + source * row.state_floats, row.state_floats, row.state);
  }
  if (row.history != nullptr) {
    *row.history = rows.histories != nullptr ? rows.histories[source] : rows.now;
  }
}

Status TableLoader::RemoveKeys(Span<const int64_t> keys) {
  TFHYBRID_RETURN_IF_ERROR(Begin());
  const LoadingMark mark(table_->page().segment());
  table_->DropAhead();
  table_->Find(keys, &set_);
  std::vector<int64_t>& rows = set_.rows;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (!rows.empty() && rows.front() == KeyIndex::kMissing) rows.erase(rows.begin());
  table_->removal().Remove(std::move(rows));
  return Status::Ok();
}

Status TableLoader::Clear() {
  TFHYBRID_RETURN_IF_ERROR(Begin());
  TableSegment* const segment = table_->page().segment();
  const LoadingMark mark(segment);
  table_->DropAhead();
  TableCounters& counters = segment->counters;
  const uint64_t rows_before = counters.rows;
  __atomic_store_n(&counters.rows, 0, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  // Without rows it is empty, and may have been made for those to come.
  Status built;
  if (rows_before != 0 || !table_->index().TakesParts()) built = table_->index().Restart();
  if (!built.ok()) {
    __atomic_store_n(&counters.rows, rows_before, __ATOMIC_RELEASE);
    return built;
  }
  table_->chunks().files().Drop();
  __atomic_store_n(&counters.failed, 0, __ATOMIC_RELEASE);
  SetInitialDecay(1.0);
  SetEventTime(kNoTime);
  return Status::Ok();
}

void TableLoader::SetInitialDecay(double decay) {
  TableCounters& counters = table_->page().counters();
  StoreRelease(&counters.decay, 1.0);
  StoreRelease(&counters.initial_decay, decay);
}

void TableLoader::SetEventTime(int64_t time) {
  StoreRelease(&table_->page().counters().event_time, time);
}

}  // namespace tfhybrid
