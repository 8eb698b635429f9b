#include "core/store/file_rows.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/util/fault_point.h"

namespace tfhybrid {

FileRows::FileRows(const TablePage* page, MappedFile tier, AddressAt address_at)
    : page_(page), tier_(std::move(tier)), address_at_(std::move(address_at)) {}

std::string FileRows::Directory() const {
  const char* const files = tier()->shape.files;
  return TierDirectory(std::string(files, strnlen(files, kMaxFilesPath)), page_->directory(),
                       page_->token(), page_->name());
}

TierGeneration FileRows::GenerationOf(uint64_t number) const {
  return {page_->name(), page_->paths().Cache(number), TierRows(Directory(), number),
          page_->token(), number};
}

int64_t FileRows::CacheRows(int64_t record_floats) const {
  return CacheSlots(static_cast<int64_t>(tier()->shape.cache_bytes), record_floats);
}

Status FileRows::Make(int64_t record_floats, int64_t capacity) {
  if (!used() || cache_ != nullptr) return Status::Ok();
  if (CacheRows(record_floats) < 1) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", page_->name(),
                         "': its cache has no room for one row. Received: FileTier(cache_bytes=",
                         tier()->shape.cache_bytes, ")");
  }
  const TierGeneration generation = GenerationOf(tier()->made + 1);
  Status made = MakeGeneration(generation, record_floats, capacity);
  if (!made.ok()) {
    cache_ = nullptr;
    unlink(generation.cache_path.c_str());
    unlink(generation.rows_path.c_str());
    return made;
  }
  tier()->made = generation.number;
  StoreRelease(&tier()->generation, generation.number);
  TFHYBRID_FAULT_POINT();
  return Status::Ok();
}

Status FileRows::MakeGeneration(const TierGeneration& generation, int64_t record_floats,
                                int64_t capacity) {
  TFHYBRID_ASSIGN_OR_RETURN(cache_,
                            RowCache::Create(generation, CacheRows(record_floats), record_floats));
  TFHYBRID_FAULT_POINT();
  TFHYBRID_RETURN_IF_ERROR(Reserve(0, capacity));
  TFHYBRID_ASSIGN_OR_RETURN(
      row_tier_, RowTier::Open(page_->paths(), Directory(), page_->token(), generation.number));
  return Status::Ok();
}

Status FileRows::Reserve(int64_t first, int64_t end) const {
  if (!used()) return Status::Ok();
  return cache_->file().Reserve(first, end,
                                "table '" + page_->name() + "', rows " + std::to_string(first) +
                                    " to " + std::to_string(end - 1));
}

void FileRows::Drop() {
  if (!used()) return;
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

Status FileRows::Attach(int64_t record_floats) {
  if (!used()) return Status::Ok();
  if (page_->rows() == 0) {
    Drop();
    return Status::Ok();
  }
  const uint64_t number = tier()->generation;
  TFHYBRID_ASSIGN_OR_RETURN(cache_, RowCache::Attach(GenerationOf(number), record_floats));
  TFHYBRID_ASSIGN_OR_RETURN(row_tier_,
                            RowTier::Open(page_->paths(), Directory(), page_->token(), number));
  return Status::Ok();
}

Status FileRows::CheckOptimizer(const OptimizerConfig& config) const {
  if (!used()) return Status::Ok();
  if ((config.flags & kEveryRow) != 0) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", page_->name(),
                         "' lies in files: its optimizer cannot update every row (lazy=False), for "
                         "each step would read and write the whole file");
  }
  return CheckNoRows();
}

Status FileRows::CheckNoRows() const {
  if (!used() || page_->rows() == 0) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "Table '", page_->name(),
                       "' lies in files and has ", page_->rows(),
                       " rows: it gets its optimizer before its first row, and keeps it. Compile "
                       "the model before tables are loaded, and save a checkpoint and restore it "
                       "in a new job for another optimizer");
}

Status FileRows::Bring(const std::vector<int64_t>& rows, const ParallelFor& parallel_for) {
  if (!used() || rows.empty()) return Status::Ok();
  return cache_->Bring(rows, page_->rows(), address_at_, parallel_for);
}

void FileRows::BringAhead(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  static_cast<void>(cache_->BringAhead(rows, page_->rows(), address_at_));
}

Status FileRows::Read(int64_t row, float* record) const {
  return row_tier_->Read(address_at_(row), record);
}

void FileRows::BeginMove(int64_t row, int64_t last) const {
  tier()->removed_address = *address_at_(row);
  tier()->last_address = *address_at_(last);
}

void FileRows::Move(int64_t row, int64_t last) {
  const uint64_t removed = tier()->removed_address, moved = tier()->last_address;
  cache_->Release(row, removed);
  TFHYBRID_FAULT_POINT();
  if (row == last) return;
  StoreRelease(address_at_(row), moved);
  TFHYBRID_FAULT_POINT();
  cache_->Renumber(moved, row);
  TFHYBRID_FAULT_POINT();
  StoreRelease(address_at_(last), removed);
}

}  // namespace tfhybrid
