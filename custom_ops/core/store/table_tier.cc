// TableWriter: a table whose rows lie in files on a disk (core/store/row_tier.h).
//
// Its files have one generation from the first chunk until the table is cleared or gets another
// optimizer: a record holds embedding and state, so its length is known when the optimizer is.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/store/table_writer.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

std::string TableWriter::TierPath() const {
  const char* const files = tier()->shape.files;
  return TierDirectory(std::string(files, strnlen(files, kMaxFilesPath)), directory_,
                       table()->header.token, name());
}

TierGeneration TableWriter::GenerationOf(uint64_t number) const {
  return {name(), paths_.Cache(number), TierRows(TierPath(), number), table()->header.token,
          number};
}

int64_t TableWriter::CacheRows() const {
  return CacheSlots(static_cast<int64_t>(tier()->shape.cache_bytes), RecordFloats());
}

Status TableWriter::MakeTier() {
  if (!in_files() || cache_ != nullptr) return Status::Ok();
  if (CacheRows() < 1) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", name(),
                         "': its cache has no room for one row. Received: FileTier(cache_bytes=",
                         tier()->shape.cache_bytes, ")");
  }
  const uint64_t number = tier()->made + 1;
  const TierGeneration generation = GenerationOf(number);
  Result<std::unique_ptr<RowCache>> made =
      RowCache::Create(generation, CacheRows(), RecordFloats());
  Status status = made.status();
  if (made.ok()) {
    cache_ = made.Take();
    TFHYBRID_FAULT_POINT();
    const int64_t capacity = locator_.Capacity(static_cast<int64_t>(chunks_.size()));
    status = ReserveRecords(0, capacity);
  }
  if (status.ok()) {
    Result<std::shared_ptr<const RowTier>> opened =
        RowTier::Open(paths_, TierPath(), table()->header.token, number);
    status = opened.status();
    if (opened.ok()) row_tier_ = opened.Take();
  }
  if (!status.ok()) {
    cache_ = nullptr;
    unlink(generation.cache_path.c_str());
    unlink(generation.rows_path.c_str());
    return status;
  }
  tier()->made = number;
  StoreRelease(&tier()->generation, number);
  TFHYBRID_FAULT_POINT();
  return Status::Ok();
}

Status TableWriter::ReserveRecords(int64_t first, int64_t end) const {
  if (!in_files()) return Status::Ok();
  return cache_->file().Reserve(
      first, end,
      "table '" + name() + "', rows " + std::to_string(first) + " to " + std::to_string(end - 1));
}

// REQUIRES: the table has no rows.
void TableWriter::DropTier() {
  if (!in_files()) return;
  cache_ = nullptr;
  row_tier_ = nullptr;
  StoreRelease(&tier()->generation, uint64_t{0});
  TFHYBRID_FAULT_POINT();
  // The one that a leader was making when it died, too.
  for (uint64_t number = tier()->made; number <= tier()->made + 1; ++number) {
    const TierGeneration generation = GenerationOf(number);
    unlink(generation.cache_path.c_str());
    unlink(generation.rows_path.c_str());
  }
}

// REQUIRES: the chunks are attached. CheckRecords() follows, when no removal is under way.
Status TableWriter::AttachTier() {
  if (!in_files()) return Status::Ok();
  if (rows() == 0) {
    DropTier();
    return Status::Ok();
  }
  const uint64_t number = tier()->generation;
  TFHYBRID_ASSIGN_OR_RETURN(cache_, RowCache::Attach(GenerationOf(number), RecordFloats()));
  TFHYBRID_ASSIGN_OR_RETURN(row_tier_,
                            RowTier::Open(paths_, TierPath(), table()->header.token, number));
  return Status::Ok();
}

Status TableWriter::CheckFileOptimizer(const OptimizerConfig& config) const {
  if ((config.flags & kEveryRow) != 0) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", name(),
                         "' lies in files: its optimizer cannot update every row (lazy=False), for "
                         "each step would read and write the whole file");
  }
  return CheckNoFileRows();
}

Status TableWriter::CheckNoFileRows() const {
  if (!in_files() || rows() == 0) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "Table '", name(),
                       "' lies in files and has ", rows(),
                       " rows: it gets its optimizer before its first row, and keeps it. Compile "
                       "the model before tables are loaded, and save a checkpoint and restore it "
                       "in a new job for another optimizer");
}

Status TableWriter::Bring(const std::vector<int64_t>& rows, const ParallelFor& parallel_for) {
  if (!in_files() || rows.empty()) return Status::Ok();
  return cache_->Bring(rows, this->rows(), Addresses(), parallel_for);
}

// What a checkpoint still wants of two rows before their addresses change. It reads the disk, which
// may fail: then the checkpoint fails, and the update does not.
void TableWriter::KeepFileRows(int64_t row, int64_t last) const {
  cursors_.Mark(row);
  if (frozen_ == nullptr) return;
  frozen_->KeepFileRow(row, KeyOf(row), HistoryOf(row));
  frozen_->KeepFileRow(last, KeyOf(last), HistoryOf(last));
}

// The two rows exchange addresses. Whatever of it a dead leader has done is done once more, from
// what the tier says that they had.
void TableWriter::MoveAddress(int64_t row, int64_t last) {
  const uint64_t removed = tier()->removed_address, moved = tier()->last_address;
  cache_->Release(row, removed);
  TFHYBRID_FAULT_POINT();
  if (row == last) return;
  StoreRelease(AddressAtRow(row), moved);
  TFHYBRID_FAULT_POINT();
  cache_->Renumber(moved, row);
  TFHYBRID_FAULT_POINT();
  StoreRelease(AddressAtRow(last), removed);
}

// As many at a time as the cache holds. A block that cannot be brought is as it was.
Status TableWriter::NormalizeFileRows(const ParallelFor& parallel_for) {
  std::vector<int64_t> block;
  while (normalized_ < rows()) {
    const int64_t end = std::min(rows(), normalized_ + cache_->slots());
    block.resize(static_cast<size_t>(end - normalized_));
    std::iota(block.begin(), block.end(), normalized_);
    TFHYBRID_RETURN_IF_ERROR(Bring(block, parallel_for));
    parallel_for(end - normalized_, dim(), [&](int64_t first, int64_t last) {
      ScaleRows(normalized_ + first, normalized_ + last);
    });
    normalized_ = end;
  }
  normalized_ = 0;
  return Status::Ok();
}

}  // namespace tfhybrid
