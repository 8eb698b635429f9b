// TablePage: the page of a table that its leader writes (TableSegment), and what stays the same
// over the table's life. Every part of a TableWriter reads and writes the table's counters here.
//
// Owned by the TableWriter, whose parts point to it. The leader's process only. Const as a pointer
// is: what it points to may be written.
#ifndef TFHYBRID_CORE_STORE_TABLE_PAGE_H_
#define TFHYBRID_CORE_STORE_TABLE_PAGE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/store/row_locator.h"
#include "core/store/segment.h"

namespace tfhybrid {

class TablePage {
 public:
  // `segment` is a checked TableSegment of the table that `paths` names, mapped for writing.
  TablePage(const std::string& directory, MappedFile segment, TablePaths paths)
      : directory_(directory),
        file_(std::move(segment)),
        paths_(std::move(paths)),
        locator_(LocatorOf(this->segment()->shape)) {}
  TablePage(const TablePage&) = delete;
  TablePage& operator=(const TablePage&) = delete;

  TableSegment* segment() const { return reinterpret_cast<TableSegment*>(file_.mutable_data()); }
  TableCounters& counters() const { return segment()->counters; }
  const TableShape& shape() const { return segment()->shape; }

  std::string name() const {
    return std::string(shape().name, strnlen(shape().name, kMaxTableName));
  }
  int64_t dim() const { return shape().dim; }
  const RowPolicy& policy() const { return shape().policy; }
  uint64_t token() const { return segment()->header.token; }
  // The directory of the store.
  const std::string& directory() const { return directory_; }
  const TablePaths& paths() const { return paths_; }
  const RowLocator& locator() const { return locator_; }

  int64_t rows() const {
    // Atomic for the index that is made in the background: it reads keys of the rows it sees here.
    return static_cast<int64_t>(__atomic_load_n(&counters().rows, __ATOMIC_ACQUIRE));
  }
  uint64_t version() const { return counters().version; }
  // The latest event time that an update came with.
  int64_t event_time() const { return counters().event_time; }
  // Stored embeddings are divided by this, and initial values of new rows are multiplied by it.
  double decay() const { return counters().decay; }
  double initial_decay() const { return counters().initial_decay; }
  // The version at which the optimizer began.
  uint64_t optimizer_start() const { return segment()->optimizer_start; }
  void SetOptimizerStart(uint64_t version) const { segment()->optimizer_start = version; }

  SegmentIdentity IdentityOf(SegmentKind kind, int64_t ordinal) const {
    return {kind, token(), static_cast<uint64_t>(ordinal)};
  }

 private:
  const std::string directory_;
  const MappedFile file_;
  const TablePaths paths_;
  const RowLocator locator_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_PAGE_H_
