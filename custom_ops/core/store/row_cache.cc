#include "core/store/row_cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

// Rough, for the size of the pieces that threads take: a system call and a copy.
constexpr int64_t kRecordCostNs = 5'000;

void Count(uint64_t* counter, size_t count) {
  __atomic_store_n(counter, *counter + count, __ATOMIC_RELAXED);
}

}  // namespace

RowCache::RowCache(std::string table_name, MappedFile cache, RowFile file)
    : table_name_(std::move(table_name)),
      cache_(std::move(cache)),
      file_(std::move(file)),
      record_floats_(static_cast<int64_t>(segment()->record_floats)),
      slots_(CacheSlotsOf(cache_)),
      images_(CacheImagesOf(cache_)),
      wanted_in_(static_cast<size_t>(slots())),
      wanted_lately_(static_cast<size_t>(slots())),
      bound_(static_cast<size_t>(slots())),
      recent_(slots()) {}

Result<std::unique_ptr<RowCache>> RowCache::Create(const TierGeneration& generation, int64_t slots,
                                                   int64_t record_floats) {
  // What an attempt that failed, or a dead leader, has left: no counter names it.
  unlink(generation.cache_path.c_str());
  unlink(generation.rows_path.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile cache,
      CreateSegment(
          generation.cache_path, {SegmentKind::kCache, generation.token, generation.number},
          CacheImagesOffset(slots) + slots * RecordBytes(record_floats),
          "table '" + generation.table_name + "', cache of " + std::to_string(slots) + " rows"));
  auto* segment = reinterpret_cast<CacheSegment*>(cache.mutable_data());
  segment->slots = static_cast<uint64_t>(slots);
  segment->record_floats = static_cast<uint64_t>(record_floats);
  TFHYBRID_FAULT_POINT();
  Result<RowFile> file = RowFile::Create(generation.rows_path, RecordBytes(record_floats));
  if (!file.ok()) {
    unlink(generation.cache_path.c_str());
    return file.status();
  }
  return std::unique_ptr<RowCache>(
      new RowCache(generation.table_name, std::move(cache), file.Take()));
}

Result<std::unique_ptr<RowCache>> RowCache::Attach(const TierGeneration& generation,
                                                   int64_t record_floats) {
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile cache,
      OpenSegmentWritable(generation.cache_path,
                          {SegmentKind::kCache, generation.token, generation.number}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckCache(generation.cache_path, cache));
  const auto* segment = reinterpret_cast<const CacheSegment*>(cache.data());
  if (segment->record_floats != static_cast<uint64_t>(record_floats)) {
    return Status::Error(StatusCode::kDataLoss, generation.cache_path, " is damaged: rows of ",
                         segment->record_floats, " numbers, wanted ", record_floats);
  }
  TFHYBRID_ASSIGN_OR_RETURN(
      RowFile file, RowFile::OpenWritable(generation.rows_path, RecordBytes(record_floats)));
  return std::unique_ptr<RowCache>(
      new RowCache(generation.table_name, std::move(cache), std::move(file)));
}

bool RowCache::Holds(int64_t row, uint64_t address) const {
  const int64_t number = SlotOf(address);
  return IsCached(address) && number < slots() &&
         slots_[number].row_plus_one == static_cast<uint64_t>(row) + 1;
}

Status RowCache::CheckSlots(int64_t rows, const AddressAt& address_at) {
  for (int64_t number = 0; number < slots(); ++number) {
    const auto row = static_cast<int64_t>(slots_[number].row_plus_one) - 1;
    const bool held =
        row >= 0 && row < rows && IsCached(*address_at(row)) && SlotOf(*address_at(row)) == number;
    if (!held) slots_[number].row_plus_one = 0;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t address = *address_at(row);
    if (!IsCached(address) || Holds(row, address)) continue;
    return Status::Error(StatusCode::kDataLoss, "Table '", table_name_, "' is damaged: row ", row,
                         " lies in no slot of its cache");
  }
  return Status::Ok();
}

Status RowCache::Bring(const std::vector<int64_t>& rows, int64_t rows_in_table,
                       const AddressAt& address_at, const ParallelFor& parallel_for) {
  if (rows.size() > wanted_in_.size()) {
    return Status::Error(StatusCode::kResourceExhausted, "Table '", table_name_, "': ", rows.size(),
                         " rows of one update do not fit in its cache, which holds ", slots(),
                         ". Set FileTier(cache_bytes=...) to more than ",
                         static_cast<int64_t>(rows.size()) *
                             (RecordBytes(record_floats_) + int64_t{sizeof(CacheSlot)}),
                         ". No row was changed");
  }
  ++round_;
  wanted_ = rows.size();
  std::vector<int64_t> missing;
  for (const int64_t row : rows) {
    const uint64_t address = *address_at(row);
    if (!Holds(row, address)) {
      if (row < rows_in_table) file_.Fetch(RecordOf(address));
      missing.push_back(row);
      continue;
    }
    const auto number = static_cast<size_t>(SlotOf(address));
    wanted_in_[number] = round_;
    wanted_lately_[number] = true;
  }
  Count(&segment()->hits, rows.size() - missing.size());
  TFHYBRID_RETURN_IF_ERROR(FillSlots(missing, rows_in_table, address_at, parallel_for));
  Count(&segment()->misses,
        static_cast<size_t>(std::count_if(missing.begin(), missing.end(),
                                          [&](int64_t row) { return row < rows_in_table; })));
  return Status::Ok();
}

Status RowCache::BringAhead(const std::vector<int64_t>& rows, int64_t rows_in_table,
                            const AddressAt& address_at) {
  std::vector<int64_t> missing;
  for (const int64_t row : rows) {
    const uint64_t address = *address_at(row);
    if (Holds(row, address)) {
      wanted_lately_[static_cast<size_t>(SlotOf(address))] = true;
    } else {
      missing.push_back(row);
    }
  }
  if (2 * (wanted_ + missing.size()) > wanted_in_.size()) return Status::Ok();
  wanted_ += missing.size();
  for (const int64_t row : missing) file_.Fetch(RecordOf(*address_at(row)));
  return FillSlots(missing, rows_in_table, address_at, RunInline);
}

Status RowCache::FillSlots(const std::vector<int64_t>& missing, int64_t rows_in_table,
                           const AddressAt& address_at, const ParallelFor& parallel_for) {
  if (missing.empty()) return Status::Ok();
  const std::vector<int64_t> chosen = ChooseSlots(missing.size());
  const std::vector<Leaving> leaving = ChooseRecords(chosen, rows_in_table, address_at);
  // Whoever reads a record that is being written knows by this number that it may be torn.
  __atomic_store_n(&segment()->write_backs, segment()->write_backs + 1, __ATOMIC_SEQ_CST);
  TFHYBRID_RETURN_IF_ERROR(RunAll(leaving.size(), parallel_for,
                                  [&](size_t i) { return EmptySlot(leaving[i], address_at); }));
  TFHYBRID_RETURN_IF_ERROR(RunAll(missing.size(), parallel_for, [&](size_t i) {
    return FillSlot(chosen[i], missing[i], rows_in_table, address_at(missing[i]));
  }));
  // A new row's record was never written: nothing is read before it is, either.
  for (const int64_t row : missing) recent_.Add(file_.OffsetOf(RecordOf(*address_at(row))), row);
  return Status::Ok();
}

// Round and round; a slot that was wanted lately is left for one more turn.
// REQUIRES: this round wants at most slots() - count of them.
std::vector<int64_t> RowCache::ChooseSlots(size_t count) {
  std::vector<int64_t> chosen;
  for (; chosen.size() < count; hand_ = (hand_ + 1) % wanted_in_.size()) {
    if (wanted_in_[hand_] == round_) continue;
    if (wanted_lately_[hand_] && slots_[hand_].row_plus_one != 0) {
      wanted_lately_[hand_] = false;
      continue;
    }
    wanted_in_[hand_] = round_;
    wanted_lately_[hand_] = true;
    chosen.push_back(static_cast<int64_t>(hand_));
  }
  return chosen;
}

// Pages that are not in memory are asked for together, and not one after the other.
std::vector<RowCache::Leaving> RowCache::ChooseRecords(const std::vector<int64_t>& chosen,
                                                       int64_t rows_in_table,
                                                       const AddressAt& address_at) {
  for (const int64_t number : chosen) bound_[static_cast<size_t>(number)] = true;
  std::vector<Leaving> all;
  all.reserve(chosen.size());
  for (const int64_t number : chosen) {
    const auto row = static_cast<int64_t>(slots_[number].row_plus_one) - 1;
    // A free slot, or one of a row that an update which failed has left no row of.
    if (row < 0 || row >= rows_in_table) {
      all.push_back({number, RecentRecords::kNone, RecentRecords::kNone});
      continue;
    }
    const int64_t record = RecordOf(*address_at(row));
    const int64_t other = TakeRecentRow(record, rows_in_table, address_at);
    if (other != RecentRecords::kNone)
      bound_[static_cast<size_t>(SlotOf(*address_at(other)))] = true;
    file_.FetchForWrite(other == RecentRecords::kNone ? record : RecordOf(*address_at(other)));
    all.push_back({number, row, other});
  }
  for (const Leaving& leaving : all) {
    bound_[static_cast<size_t>(leaving.slot)] = false;
    if (leaving.exchanges_with == RecentRecords::kNone) continue;
    bound_[static_cast<size_t>(SlotOf(*address_at(leaving.exchanges_with)))] = false;
  }
  return all;
}

// A row whose record holds nothing that is needed: the row lies in the cache, and stays there. Not
// one that exchanges with another row already: recent_ may know it twice, and rows are written side
// by side.
int64_t RowCache::TakeRecentRow(int64_t record, int64_t rows_in_table,
                                const AddressAt& address_at) {
  for (;;) {
    const int64_t row = recent_.Take(file_.OffsetOf(record));
    if (row == RecentRecords::kNone) return row;
    // Rows are removed, and the last row gets the number of one that is.
    if (row >= rows_in_table) continue;
    const uint64_t address = *address_at(row);
    if (Holds(row, address) && !bound_[static_cast<size_t>(SlotOf(address))]) return row;
  }
}

// The row lies in the file before its address says so. The address of the row that it exchanges
// records with comes second: after a kill between the two, a row in the file and one in the cache
// have the same record, and the one in the cache does not need it (FileRows::CheckRecords).
Status RowCache::EmptySlot(const Leaving& leaving, const AddressAt& address_at) {
  CacheSlot* const slot = &slots_[leaving.slot];
  if (leaving.row != RecentRecords::kNone) {
    const float* const record = images_ + leaving.slot * record_floats_;
    uint64_t* const address = address_at(leaving.row);
    uint64_t* const other = leaving.exchanges_with == RecentRecords::kNone
                                ? nullptr
                                : address_at(leaving.exchanges_with);
    const int64_t own_number = RecordOf(*address);
    const int64_t record_number = other == nullptr ? own_number : RecordOf(*other);
    TFHYBRID_RETURN_IF_ERROR(file_.Write(record_number, record));
    __atomic_fetch_add(&segment()->written, 1, __ATOMIC_RELAXED);
    TFHYBRID_FAULT_POINT();
    __atomic_store_n(address,
                     AddressOf(record_number, ChecksumOf(record_number, record, record_floats_)),
                     __ATOMIC_RELEASE);
    TFHYBRID_FAULT_POINT();
    if (other != nullptr) {
      __atomic_store_n(other, AddressOf(own_number, WordOf(*other)), __ATOMIC_RELEASE);
      TFHYBRID_FAULT_POINT();
    }
  }
  slot->row_plus_one = 0;
  return Status::Ok();
}

Status RowCache::FillSlot(int64_t number, int64_t row, int64_t rows_in_table, uint64_t* address) {
  CacheSlot* const slot = &slots_[number];
  __atomic_store_n(&slot->fills, slot->fills + 1, __ATOMIC_RELEASE);
  // Whoever copies a number of the row that comes sees the count of fills, too.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (row < rows_in_table) {
    float* const record = images_ + number * record_floats_;
    const int64_t record_number = RecordOf(*address);
    TFHYBRID_RETURN_IF_ERROR(file_.Read(record_number, record));
    if (ChecksumOf(record_number, record, record_floats_) != WordOf(*address)) {
      return Status::Error(StatusCode::kDataLoss, "Record ", record_number, " of ", file_.path(),
                           " is damaged: its checksum is wrong");
    }
  }
  __atomic_store_n(&slot->row_plus_one, static_cast<uint64_t>(row) + 1, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(address, WithWord(*address, kCached | static_cast<uint32_t>(number)),
                   __ATOMIC_RELEASE);
  return Status::Ok();
}

void RowCache::Release(int64_t row, uint64_t address) {
  if (Holds(row, address)) slots_[SlotOf(address)].row_plus_one = 0;
}

void RowCache::Renumber(uint64_t address, int64_t to) {
  if (!IsCached(address) || SlotOf(address) >= slots()) return;
  slots_[SlotOf(address)].row_plus_one = static_cast<uint64_t>(to) + 1;
}

// Runs all of them, and returns what the first that failed says.
Status RowCache::RunAll(size_t count, const ParallelFor& parallel_for,
                        const std::function<Status(size_t)>& work) const {
  Status status = RunParts(parallel_for, static_cast<int64_t>(count), kRecordCostNs,
                           [&](int64_t begin, int64_t end) {
                             Status first;
                             for (int64_t i = begin; i < end; ++i) {
                               const Status one = work(static_cast<size_t>(i));
                               if (first.ok()) first = one;
                             }
                             return first;
                           });
  if (status.ok()) return status;
  return Status::Error(status.code(), "Table '", table_name_, "': ", status.message());
}

}  // namespace tfhybrid
