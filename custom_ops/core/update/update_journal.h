// UpdateJournal: what the leader is applying, kept in shared memory so that an update that a killed
// leader left half done can be finished.
//
//   NAME.journal    one page, then hosts (int64 [ranks]), tables (JournalTable), lanes
//
// An update is *begun* once everything that may fail has been done: from Begin() to End() it will
// be applied, by this leader or by the next. The messages lie still in their mailboxes meanwhile.
//
// The rows of an update, in one order that follows from the messages alone, are split into
// kLanes ranges. A lane goes through its range row by row:
//
//     1. copy the row into the lane         2. armed = done + 1
//     3. update the row in place            4. done = done + 1
//
// So one store, (4), says that the row is updated and that the copy is void. A lane with
// armed > done holds the row as it was before (3). A killed process leaves memory as its retired
// instructions made it, in program order; what (2) and (4) need is that the compiler keeps that
// order.
//
// One process writes. A lane is one thread's at a time.
#ifndef TFHYBRID_CORE_UPDATE_UPDATE_JOURNAL_H_
#define TFHYBRID_CORE_UPDATE_UPDATE_JOURNAL_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/row_update.h"
#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/store/table_writer.h"
#include "core/update/update_settings.h"
#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// What an update of a table is begun with.
struct TableBeginning {
  uint64_t version;  // that the update leads to
  double decay;      // likewise
  uint64_t rows;     // before it
  int64_t time;      // of events, that it leads to
  float learning_rate;
  float clip_factor;
};

struct JournalTable {
  char name[kMaxTableName];
  uint64_t dim;
  TableBeginning beginning;
};
static_assert(sizeof(JournalTable) == 176);

struct JournalSegment {
  SegmentHeader header;
  uint64_t begun;  // atomic: not 0 from Begin() to End()
  uint32_t reduction;
  uint32_t exchange;
  uint32_t clipping;
  float clip_limit;
  uint64_t sharded;
  uint64_t ranks;
  uint64_t tables;
  uint64_t lane_bytes;
  uint64_t crc;  // of all that stays: from `reduction` on, hosts, and the tables' names and dims
};

struct alignas(64) UndoLane {
  uint64_t done;   // atomic: rows of the lane's range that are updated
  uint64_t armed;  // atomic: done + 1 while the copy of a row lies behind this struct
};

// One lane, as the thread that works in it has it.
class JournalLane {
 public:
  explicit JournalLane(UndoLane* at) : at_(at), copy_(reinterpret_cast<float*>(at + 1)) {}

  // Rows of the lane's range that are updated.
  int64_t done() const { return static_cast<int64_t>(at_->done); }

  // Steps 1 and 2.
  void Arm(const TableRow& row) {
    CopyFloats(row.embedding, row.dim, copy_);
    TFHYBRID_FAULT_POINT();
    CopyFloats(row.state, row.state_floats, copy_ + row.dim);
    if (row.history != nullptr) {
      std::memcpy(copy_ + row.dim + row.state_floats, row.history, sizeof(RowHistory));
    }
    __atomic_store_n(&at_->armed, at_->done + 1, __ATOMIC_RELEASE);
    // The row must not change before that; the stores that follow must not move up.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // Step 4; also for a key that got no row.
  void Disarm() {
    __atomic_store_n(&at_->done, at_->done + 1, __ATOMIC_RELEASE);
    // Nor may the next row's copy overwrite this one's before that.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  // Puts the row that a dead leader had in its hands back as it was, if there is one.
  void Undo(const TableRow& row) const {
    if (at_->armed <= at_->done) return;
    CopyFloats(copy_, row.dim, row.embedding);
    TFHYBRID_FAULT_POINT();
    CopyFloats(copy_ + row.dim, row.state_floats, row.state);
    if (row.history != nullptr) {
      std::memcpy(static_cast<void*>(row.history), copy_ + row.dim + row.state_floats,
                  sizeof(RowHistory));
    }
  }

 private:
  UndoLane* const at_;
  float* const copy_;
};

class UpdateJournal {
 public:
  static constexpr int64_t kLanes = 64;

  // `path` is without ".journal". `row_floats`: of the longest row, optimizer state included.
  static Result<UpdateJournal> Create(const std::string& path, uint64_t token,
                                      const UpdateSettings& settings, int64_t row_floats);
  // Opens the journal that a dead leader left.
  static Result<UpdateJournal> Open(const std::string& path, uint64_t token);
  // kDataLoss where the lanes cannot be those of an update of `rows` rows.
  Status CheckLanes(int64_t rows) const;

  const UpdateSettings& settings() const { return settings_; }
  bool begun() const;
  const TableBeginning& beginning(int64_t table) const { return tables()[table].beginning; }

  // REQUIRES: one beginning per table.
  void Begin(const std::vector<TableBeginning>& beginnings);
  void End();

  JournalLane lane(int64_t number) const { return JournalLane(LaneAt(number)); }

 private:
  UpdateJournal(UpdateSettings settings, MappedFile file)
      : settings_(std::move(settings)), file_(std::move(file)) {}
  JournalSegment* segment() const {
    return reinterpret_cast<JournalSegment*>(file_.mutable_data());
  }
  uint32_t ConstantsCrc() const;
  JournalTable* tables() const;
  UndoLane* LaneAt(int64_t number) const;

  UpdateSettings settings_;
  MappedFile file_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_UPDATE_JOURNAL_H_
