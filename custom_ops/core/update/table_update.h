// TableUpdate: the leader's part of a step: merge the messages of all ranks, reduce, apply once,
// publish.
//
// All tables of a step are planned and given room before any is changed: if one cannot grow, none
// is updated. From then on the journal has begun, and the update will be finished, by this leader
// or, if it is killed, by the next one with Finish(). The caller must tell the
// waiting ranks about a failure.
//
// An optimizer may update every row of its table (kEveryRow). The rows that the step does not touch
// then follow the last unit's keys, with a gradient of zero. REQUIRES: such a table has no policy,
// so that rows do not move while an update can still be repeated.
//
// Work is cut into units, a part of one table's keys each, so that one large table keeps all
// threads busy and many small ones cost no call each. How it is cut follows from the messages
// alone: a repeated plan has the same rows in the same order.
//
// Holds the scratch of its steps. Not thread-safe.
#ifndef TFHYBRID_CORE_UPDATE_TABLE_UPDATE_H_
#define TFHYBRID_CORE_UPDATE_TABLE_UPDATE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "core/compute/merged_keys.h"
#include "core/compute/row_update.h"
#include "core/compute/square_sum.h"
#include "core/store/table_writer.h"
#include "core/update/contribution.h"
#include "core/update/gradient_message.h"
#include "core/update/update_journal.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The numbers of one step, which are the same on all hosts.
struct StepNumbers {
  std::vector<float> learning_rates;  // of each table
  double dense_squares = 0.0;  // of the dense variables' gradients; for Clipping::kGlobalNorm
  // Squares of each table's gradients, if other hosts have some of them; for clipping by norm.
  std::vector<SquareSum> squares = {};
  // For each table, if a host that has done the step sent them; otherwise they are computed here.
  std::vector<float> clip_factors = {};
};

class TableUpdate {
 public:
  explicit TableUpdate(UpdateJournal journal) : journal_(std::move(journal)) {}

  // Plans the update and reserves space. All failures happen here, and leave every table unchanged.
  // REQUIRES: messages and tables have one entry per source and table.
  Status Stage(const std::vector<GradientMessage>& messages,
               const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  // Squares of each table's staged gradients; empty if they are not clipped by norm.
  const std::vector<SquareSum>& squares() const { return squares_; }
  // Rows by table for which what was staged needs room: of the table itself or of the keys that
  // wait for admission to it, whichever are more.
  std::vector<int64_t> NewRows(size_t tables) const;
  // The keys of a table that the update has gradients of, as staged.
  std::vector<Span<const int64_t>> KeysOf(size_t table) const {
    std::vector<Span<const int64_t>> keys;
    for (const UpdateUnit& unit : units_) {
      if (unit.table == table) keys.push_back(unit.merged.keys());
    }
    return keys;
  }
  // Applies what was staged. Fails, on all hosts alike and with nothing changed, where a learning
  // rate is too large for a table's weight decay. REQUIRES: there is a learning rate per table, the
  // messages lie where they lay, and the tables are as they were.
  Status Commit(const StepNumbers& numbers, const std::vector<TableWriter*>& tables,
                const ParallelFor& parallel_for);

  // Finishes the interrupted update that the journal says was begun. REQUIRES: its messages.
  Status Finish(const std::vector<GradientMessage>& messages,
                const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);

  const UpdateJournal& journal() const { return journal_; }

 private:
  // A part of one table's keys, from merge to apply.
  struct UpdateUnit : MergeUnit {
    // By key, then rows without one. kMissing and not among the missing: the key must wait.
    RowSet rows;
    int64_t first;                  // row of the first missing key
    std::vector<int64_t> waiting;   // keys that must wait
    std::vector<int64_t> admitted;  // keys that get a row and had waited
  };
  // Where a table stands when an update begins.
  struct Start {
    int64_t rows;
    Moment moment;  // that the update leads to
  };
  // The reduced gradient of a row is `sum` times `scale`.
  struct Reduced {
    const float* sum;
    float scale;
  };

  void Plan(const std::vector<GradientMessage>& messages, const std::vector<TableWriter*>& tables,
            const ParallelFor& parallel_for);
  // Finds the rows of a unit's keys, those of the leader's lookup by what that has found.
  static void FindRows(TableWriter* table, UpdateUnit* unit);
  // Which of a unit's keys without a row must wait for one.
  static void Admit(const TableWriter& table, const Start& start, UpdateUnit* unit);
  // False if any rank's gradients are not finite, or if the step has no samples.
  bool Applies() const { return !joint_.skip && joint_.samples > 0; }
  void AddUntouched(const std::vector<TableWriter*>& tables);
  int64_t Rows() const;
  Status Reserve(const std::vector<TableWriter*>& tables);
  // Where tables lie in files, brings the rows of the update to memory.
  Status BringRows(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) const;
  Status Begin(const StepNumbers& numbers, const std::vector<TableWriter*>& tables);
  // From the begun journal to its end: of a whole update and of one that is finished alike.
  void ChangeRows(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  void Create(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  void Prepare(const std::vector<TableWriter*>& tables);
  bool ClipsByNorm() const;
  // The clip factor of each table's gradients.
  std::vector<float> ClipFactors(const StepNumbers& numbers) const;
  std::vector<SquareSum> SumSquares(const std::vector<TableWriter*>& tables,
                                    const ParallelFor& parallel_for) const;
  SquareSum SquaresOf(const UpdateUnit& unit, const TableWriter& table) const;
  // All that the gradient of a row follows from.
  RowUpdate Gradients(const TableWriter& table) const;
  void Apply(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  void ApplyLane(const std::vector<TableWriter*>& tables, const std::vector<int64_t>& starts,
                 int64_t lane);
  // What follows when all rows are updated: waiting keys are counted, those that were admitted wait
  // no longer, and rows are evicted. Doing so once more changes nothing.
  void Settle(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);
  void CountWaiting(size_t table, TableWriter* waiting);
  void Publish(const std::vector<TableWriter*>& tables);
  float Scale(uint32_t count) const;
  // Returns the gradient of a unit's i-th row; `scratch` has MergedKeys::ScratchFloats(dim).
  Reduced GradientOf(const UpdateUnit& unit, int64_t i, int64_t dim, float* scratch) const;

  UpdateJournal journal_;
  Contribution joint_;         // of all ranks
  std::vector<Start> starts_;  // by table
  std::vector<UpdateUnit> units_;
  KeyParts parts_;
  std::vector<SquareSum> squares_;      // by table
  std::vector<RowUpdate> row_updates_;  // by table
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_TABLE_UPDATE_H_
