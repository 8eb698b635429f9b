// FileRows: which row of a table in files has which record, when a new leader attaches it.
#include <algorithm>
#include <unordered_set>

#include "core/store/file_rows.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

Status FileRows::DuplicateRecord(int64_t row, int64_t capacity) const {
  return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(), "' is damaged: row ", row,
                       " has record ", RecordOf(*address_at_(row)), ", as another row has, of ",
                       capacity);
}

// Each row lies in a slot of its own or has a record, and no two have one record. If a leader dies
// while two rows exchange their records, the one in the cache still has the record of the one in
// the file, and gets one that is left over. This may be done once more.
Status FileRows::CheckRecords(int64_t capacity) {
  if (!used() || cache_ == nullptr) return Status::Ok();
  std::vector<bool> taken(static_cast<size_t>(capacity));
  std::vector<int64_t> exchanged;
  for (const bool cached : {false, true}) {
    for (int64_t row = 0; row < capacity; ++row) {
      const uint64_t address = *address_at_(row);
      if ((row < page_->rows() && IsCached(address)) != cached) continue;
      const int64_t record = RecordOf(address);
      const bool is_new = record < capacity && !taken[static_cast<size_t>(record)];
      if (is_new) {
        taken[static_cast<size_t>(record)] = true;
      } else if (cached && record < capacity) {
        exchanged.push_back(row);
      } else {
        return DuplicateRecord(row, capacity);
      }
    }
  }
  TFHYBRID_RETURN_IF_ERROR(CheckExchanged(exchanged, capacity));
  auto left_over = taken.begin();
  for (const int64_t row : exchanged) {
    left_over = std::find(left_over, taken.end(), false);
    const int64_t record = left_over++ - taken.begin();
    StoreRelease(address_at_(row), AddressOf(record, WordOf(*address_at_(row))));
    TFHYBRID_FAULT_POINT();
  }
  return cache_->CheckSlots(page_->rows(), address_at_);
}

// Each of these cached rows has the record of a row in the file, which is there. Anything else was
// not left by an exchange.
Status FileRows::CheckExchanged(const std::vector<int64_t>& rows, int64_t capacity) const {
  if (rows.empty()) return Status::Ok();
  std::unordered_set<int64_t> records;
  for (const int64_t row : rows) {
    if (!records.insert(RecordOf(*address_at_(row))).second) return DuplicateRecord(row, capacity);
  }
  std::vector<float> record(static_cast<size_t>(row_tier_->record_floats()));
  for (int64_t row = 0; row < page_->rows(); ++row) {
    const uint64_t* const address = address_at_(row);
    if (IsCached(*address) || records.erase(RecordOf(*address)) == 0) continue;
    TFHYBRID_RETURN_IF_ERROR(row_tier_->Read(address, record.data()));
  }
  if (records.empty()) return Status::Ok();
  return DuplicateRecord(
      *std::find_if(rows.begin(), rows.end(),
                    [&](int64_t row) { return records.count(RecordOf(*address_at_(row))) != 0; }),
      capacity);
}

}  // namespace tfhybrid
