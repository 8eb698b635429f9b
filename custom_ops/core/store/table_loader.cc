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
  for (int64_t first = 0; first < keys.size(); first += max_keys) {
    const int64_t count = std::min(max_keys, keys.size() - first);
    const LoadedRows rows = {embeddings + first * dim,
                             states == nullptr ? nullptr : states + first * state_floats,
                             histories == nullptr ? nullptr : histories + first};
    TFHYBRID_RETURN_IF_ERROR(WriteBlock(keys.subspan(first, count), rows, parallel_for));
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
  const TablePage& page = table_->page();
  const RowChunks& chunks = table_->chunks();
  const auto decay = static_cast<float>(page.decay());
  const RowHistory now = {static_cast<float>(std::max(1u, page.policy().admission)),
                          static_cast<uint32_t>(page.version()), page.event_time()};
  parallel_for(unique_.size(), page.dim(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TableRow row = chunks.Row(set_.rows[static_cast<size_t>(i)]);
      const int64_t source = sources_[static_cast<size_t>(i)];
      CopyFloats(rows.embeddings + source * row.dim, row.dim, row.embedding);
      ScaleRow(1.0f / decay, row.dim, row.embedding);
      TFHYBRID_FAULT_POINT();
      if (rows.states == nullptr) {
        InitializeState(chunks.optimizer(), row.dim, row.state);
      } else {
        CopyFloats(rows.states + source * row.state_floats, row.state_floats, row.state);
      }
      if (row.history != nullptr) {
        *row.history = rows.histories != nullptr ? rows.histories[source] : now;
      }
    }
  });
  return Status::Ok();
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
  Status built = table_->index().Restart();
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
