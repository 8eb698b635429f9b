// TableWriter: which row of a table in files has which record, when a new leader attaches it.
#include <algorithm>
#include <unordered_set>

#include "core/store/table_writer.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

Status TableWriter::DuplicateRecord(int64_t row) const {
  return Status::Error(StatusCode::kDataLoss, "Table '", name(), "' is damaged: row ", row,
                       " has record ", RecordOf(*AddressAtRow(row)), ", as another row has, of ",
                       locator_.Capacity(static_cast<int64_t>(chunks_.size())));
}

// Each row lies in a slot of its own or has a record, and no two have one record. If a leader dies
// while two rows exchange their records, the one in the cache still has the record of the one in
// the file, and gets one that is left over. This may be done once more.
Status TableWriter::CheckRecords() {
  if (!in_files() || cache_ == nullptr) return Status::Ok();
  const int64_t capacity = locator_.Capacity(static_cast<int64_t>(chunks_.size()));
  std::vector<bool> taken(static_cast<size_t>(capacity));
  std::vector<int64_t> exchanged;
  for (const bool cached : {false, true}) {
    for (int64_t row = 0; row < capacity; ++row) {
      const uint64_t address = *AddressAtRow(row);
      if ((row < rows() && IsCached(address)) != cached) continue;
      const int64_t record = RecordOf(address);
      const bool is_new = record < capacity && !taken[static_cast<size_t>(record)];
      if (is_new) {
        taken[static_cast<size_t>(record)] = true;
      } else if (cached && record < capacity) {
        exchanged.push_back(row);
      } else {
        return DuplicateRecord(row);
      }
    }
  }
  TFHYBRID_RETURN_IF_ERROR(CheckExchanged(exchanged));
  auto left_over = taken.begin();
  for (const int64_t row : exchanged) {
    left_over = std::find(left_over, taken.end(), false);
    const int64_t record = left_over++ - taken.begin();
    StoreRelease(AddressAtRow(row), AddressOf(record, WordOf(*AddressAtRow(row))));
    TFHYBRID_FAULT_POINT();
  }
  return cache_->CheckSlots(rows(), Addresses());
}

// Each of these cached rows has the record of a row in the file, which is there. Anything else was
// not left by an exchange.
Status TableWriter::CheckExchanged(const std::vector<int64_t>& rows) const {
  if (rows.empty()) return Status::Ok();
  std::unordered_set<int64_t> records;
  for (const int64_t row : rows) {
    if (!records.insert(RecordOf(*AddressAtRow(row))).second) return DuplicateRecord(row);
  }
  std::vector<float> record(static_cast<size_t>(RecordFloats()));
  for (int64_t row = 0; row < this->rows(); ++row) {
    const uint64_t address = *AddressAtRow(row);
    if (IsCached(address) || records.erase(RecordOf(address)) == 0) continue;
    TFHYBRID_RETURN_IF_ERROR(row_tier_->Read(AddressAtRow(row), record.data()));
  }
  if (records.empty()) return Status::Ok();
  return DuplicateRecord(*std::find_if(rows.begin(), rows.end(), [&](int64_t row) {
    return records.count(RecordOf(*AddressAtRow(row))) != 0;
  }));
}

}  // namespace tfhybrid
