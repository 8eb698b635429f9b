// RecentRecords: the rows that a cache has read from its file lately, found by where their records
// lie. The kernel still has the pages of these records, and nobody needs what the records hold: the
// rows lie in the cache. So a row that leaves the cache can be written there without a read.
//
// Only a row whose record lies in the same region of the file is given out. A row's record thus
// stays within a region all its life, and whoever reads rows in order (a checkpoint) reads each
// page of the disk once, if the kernel keeps one region.
//
// A hint, and nothing more: the caller must check what Take() returns. Of many rows the latest are
// kept. Not thread-safe.
#ifndef TFHYBRID_CORE_STORE_RECENT_RECORDS_H_
#define TFHYBRID_CORE_STORE_RECENT_RECORDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfhybrid {

class RecentRecords {
 public:
  static constexpr int64_t kRegionBytes = int64_t{64} << 20;
  // The kernel has to keep a page of 4 KiB for each of them: 1 GiB.
  static constexpr int64_t kMaxRecords = int64_t{1} << 18;
  static constexpr int64_t kNone = -1;

  // REQUIRES: max_records > 0.
  explicit RecentRecords(int64_t max_records)
      : entries_(static_cast<size_t>(std::min(max_records, kMaxRecords))) {}

  // `offset`: where the row's record begins in the file.
  void Add(int64_t offset, int64_t row) {
    const size_t region = RegionOf(offset);
    if (region >= latest_.size()) latest_.resize(region + 1);
    ++added_;
    entries_[added_ % entries_.size()] = {row, latest_[region]};
    latest_[region] = added_;
  }

  // Forgets and returns the row that was added last of the region around `offset`, or kNone.
  int64_t Take(int64_t offset) {
    const size_t region = RegionOf(offset);
    if (region >= latest_.size()) return kNone;
    const uint64_t number = latest_[region];
    // Older ones were overwritten, and so were those that they lead to.
    if (number == 0 || number + entries_.size() <= added_) return kNone;
    const RecentRecord& entry = entries_[number % entries_.size()];
    latest_[region] = entry.before;
    return entry.row;
  }

 private:
  struct RecentRecord {
    int64_t row = kNone;
    uint64_t before = 0;  // the number of the entry before it of its region, 0 if there is none
  };
  static size_t RegionOf(int64_t offset) { return static_cast<size_t>(offset / kRegionBytes); }

  std::vector<RecentRecord> entries_;  // entry N lies at N modulo their count
  std::vector<uint64_t> latest_;       // of each region
  uint64_t added_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_RECENT_RECORDS_H_
