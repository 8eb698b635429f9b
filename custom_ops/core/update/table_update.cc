#include "core/update/table_update.h"

#include <algorithm>

#include "core/util/counters.h"
#include "core/util/fault_point.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
namespace {

// Rough costs in nanoseconds, for the size of the pieces that threads take.
constexpr int64_t kMergeCostNs = 60;
constexpr int64_t kNewRowCostNs = 100;
constexpr int64_t kIndexCostNs = 60;
constexpr int64_t kApplyCostNs = 80;
constexpr int64_t kSettleCostNs = 100'000;
// How far ahead of the row in hand the next ones are fetched.
constexpr int64_t kRowsAhead = 8;

// For the sum of a key's gradients, and what it is changed into.
int64_t ScratchFloats(int64_t dim) { return MergedKeys::ScratchFloats(dim) + dim; }

template <typename Units, typename Size>
std::vector<int64_t> Starts(const Units& units, const Size& size) {
  std::vector<int64_t> starts = {0};
  for (const auto& unit : units) starts.push_back(starts.back() + size(unit));
  return starts;
}

// What `size` says of the units of each table, added up.
template <typename Units, typename Size>
std::vector<int64_t> PerTable(const Units& units, size_t tables, const Size& size) {
  std::vector<int64_t> sums(tables, 0);
  for (const auto& unit : units) sums[unit.table] += size(unit);
  return sums;
}

// The keys of a unit that get a row, and the keys that wait for admission.
constexpr auto MissingOf = [](const auto& unit) {
  return static_cast<int64_t>(unit.rows.missing.size());
};
constexpr auto WaitingOf = [](const auto& unit) {
  return static_cast<int64_t>(unit.waiting.size());
};
// Those of its keys, and those that it updates beside them.
constexpr auto RowsOf = [](const auto& unit) {
  return static_cast<int64_t>(unit.rows.rows.size());
};

}  // namespace

float TableUpdate::Scale(uint32_t count) const {
  switch (journal_.settings().reduction) {
    case Reduction::kFrequency:
      return 1.0f / static_cast<float>(count);
    case Reduction::kMean:
      return 1.0f / static_cast<float>(joint_.samples);
    case Reduction::kSum:
      return 1.0f;
  }
  return 1.0f;
}

TableUpdate::Reduced TableUpdate::GradientOf(const UpdateUnit& unit, int64_t i, int64_t dim,
                                             float* scratch) const {
  if (i < unit.merged.keys().size()) {
    return {unit.merged.Sum(i, scratch), Scale(unit.merged.Count(i))};
  }
  std::fill_n(scratch, dim, 0.0f);
  return {scratch, 1.0f};
}

Status TableUpdate::Stage(const std::vector<GradientMessage>& messages,
                          const std::vector<TableWriter*>& tables,
                          const ParallelFor& parallel_for) {
  for (const TableWriter* table : tables) {
    if (table->optimizer().kind != OptimizerKind::kNone) continue;
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", table->name(),
                         "' has no optimizer: was the DistributedOptimizer built for it?");
  }
  joint_ = JointOf(messages);
  starts_.clear();
  for (const TableWriter* table : tables) {
    const int64_t time = std::max(table->page().event_time(), joint_.event_time);
    starts_.push_back({table->rows(), {table->version() + 1, time}});
  }
  Plan(messages, tables, parallel_for);
  TFHYBRID_RETURN_IF_ERROR(Reserve(tables));
  for (TableWriter* table : tables) {
    TFHYBRID_RETURN_IF_ERROR(table->NormalizeDecay(parallel_for));
  }
  TFHYBRID_RETURN_IF_ERROR(BringRows(tables, parallel_for));
  squares_.clear();
  if (ClipsByNorm()) squares_ = SumSquares(tables, parallel_for);
  return Status::Ok();
}

bool TableUpdate::ClipsByNorm() const {
  const Clipping clipping = journal_.settings().clipping;
  return clipping == Clipping::kNorm || clipping == Clipping::kGlobalNorm;
}

std::vector<int64_t> TableUpdate::NewRows(size_t tables) const {
  std::vector<int64_t> rows = PerTable(units_, tables, MissingOf);
  const std::vector<int64_t> waiting = PerTable(units_, tables, WaitingOf);
  for (size_t t = 0; t < tables; ++t) rows[t] = std::max(rows[t], waiting[t]);
  return rows;
}

int64_t TableUpdate::Rows() const { return Starts(units_, RowsOf).back(); }

Status TableUpdate::Commit(const StepNumbers& numbers, const std::vector<TableWriter*>& tables,
                           const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(Begin(numbers, tables));
  TFHYBRID_FAULT_POINT();
  const PhaseTimer timer(Phase::kApply);
  ChangeRows(tables, parallel_for);
  if (Applies()) {
    AddTo(Counter::kSteps, 1);
    AddTo(Counter::kSamples, joint_.samples);
  }
  return Status::Ok();
}

void TableUpdate::ChangeRows(const std::vector<TableWriter*>& tables,
                             const ParallelFor& parallel_for) {
  for (TableWriter* table : tables) table->BeginChange();
  TFHYBRID_FAULT_POINT();
  Create(tables, parallel_for);
  Apply(tables, parallel_for);
  for (TableWriter* table : tables) table->EndChange();
  TFHYBRID_FAULT_POINT();
  journal_.End();
}

Status TableUpdate::Begin(const StepNumbers& numbers, const std::vector<TableWriter*>& tables) {
  const std::vector<float> clip_factors = ClipFactors(numbers);
  std::vector<TableBeginning> beginnings;
  for (size_t t = 0; t < tables.size(); ++t) {
    const float rate = numbers.learning_rates[t];
    const double shrinkage = double{rate} * tables[t]->optimizer().weight_decay;
    if (!(shrinkage < 1.0)) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", tables[t]->name(),
                           "': learning rate times weight_decay must be below 1. Received: ", rate,
                           " times ", tables[t]->optimizer().weight_decay);
    }
    // A step of which nothing is applied does not decay either.
    beginnings.push_back(
        {starts_[t].moment.step, tables[t]->page().decay() * (Applies() ? 1.0 - shrinkage : 1.0),
         static_cast<uint64_t>(starts_[t].rows), starts_[t].moment.time, rate, clip_factors[t]});
  }
  journal_.Begin(beginnings);
  return Status::Ok();
}

std::vector<float> TableUpdate::ClipFactors(const StepNumbers& numbers) const {
  if (!numbers.clip_factors.empty()) return numbers.clip_factors;
  std::vector<float> factors(starts_.size(), 1.0f);
  if (!ClipsByNorm()) return factors;
  const UpdateSettings& settings = journal_.settings();
  const std::vector<SquareSum>& sums = numbers.squares.empty() ? squares_ : numbers.squares;
  SquareSum all;
  for (const SquareSum& sum : sums) all.Add(sum);
  const double global = all.Total() + numbers.dense_squares;
  for (size_t t = 0; t < factors.size(); ++t) {
    factors[t] = ClipFactor(settings.clipping == Clipping::kNorm ? sums[t].Total() : global,
                            settings.clip_limit);
  }
  return factors;
}

Status TableUpdate::Finish(const std::vector<GradientMessage>& messages,
                           const std::vector<TableWriter*>& tables,
                           const ParallelFor& parallel_for) {
  joint_ = JointOf(messages);
  starts_.clear();
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableBeginning& beginning = journal_.beginning(static_cast<int64_t>(t));
    starts_.push_back({static_cast<int64_t>(beginning.rows), {beginning.version, beginning.time}});
  }
  Plan(messages, tables, parallel_for);
  TFHYBRID_RETURN_IF_ERROR(journal_.CheckLanes(Rows()));
  TFHYBRID_RETURN_IF_ERROR(Reserve(tables));
  TFHYBRID_RETURN_IF_ERROR(BringRows(tables, parallel_for));
  ChangeRows(tables, parallel_for);
  return Status::Ok();
}

void TableUpdate::Plan(const std::vector<GradientMessage>& messages,
                       const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  std::vector<std::vector<RankGradients>> ranks =
      ByTable(messages, journal_.settings().hosts, tables.size());
  for (std::vector<RankGradients>& of_table : ranks) {
    for (RankGradients& rank : of_table) {
      if (joint_.skip) rank.keys = {};
    }
  }
  parts_.Merge(ranks, journal_.settings().schema.dims, kMergeCostNs, parallel_for, &units_,
               [&](UpdateUnit* unit) {
                 const size_t table = unit->table;
                 FindRows(tables[table], unit);
                 Admit(*tables[table], starts_[table], unit);
               });
  if (Applies()) AddUntouched(tables);
}

// Among those of the beginning: a new row has been touched. By that number an update that a dead
// leader began has the same rows in the same order.
void TableUpdate::AddUntouched(const std::vector<TableWriter*>& tables) {
  std::vector<bool> touched;
  for (size_t t = 0; t < tables.size(); ++t) {
    if ((tables[t]->optimizer().flags & kEveryRow) == 0) continue;
    touched.assign(static_cast<size_t>(starts_[t].rows), false);
    UpdateUnit* last = nullptr;
    for (UpdateUnit& unit : units_) {
      if (unit.table != t) continue;
      last = &unit;
      for (const int64_t row : unit.rows.rows) {
        if (row != KeyIndex::kMissing && row < starts_[t].rows) {
          touched[static_cast<size_t>(row)] = true;
        }
      }
    }
    for (int64_t row = 0; row < starts_[t].rows; ++row) {
      if (!touched[static_cast<size_t>(row)]) last->rows.rows.push_back(row);
    }
  }
}

void TableUpdate::Admit(const TableWriter& table, const Start& start, UpdateUnit* unit) {
  unit->waiting.clear();
  unit->admitted.clear();
  const TableWriter* const waiting = table.waiting();
  if (waiting == nullptr) return;
  const Span<const int64_t> keys = unit->merged.keys();
  // Those too that have got their row by now, in an update that a dead leader began.
  std::vector<int64_t> positions, candidates, missing;
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t row = unit->rows.rows[static_cast<size_t>(i)];
    if (row == KeyIndex::kMissing || row >= start.rows) positions.push_back(i);
  }
  for (const int64_t position : positions) candidates.push_back(keys[position]);
  RowSet found;
  waiting->Find(candidates, &found);
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t waits = found.rows[i];
    const bool is_new = unit->rows.rows[static_cast<size_t>(positions[i])] == KeyIndex::kMissing;
    const float count = waits == KeyIndex::kMissing
                            ? 1.0f
                            : CountWith(*waiting->chunks().Row(waits).history, start.moment.step);
    if (is_new && count < static_cast<float>(table.policy().admission)) {
      unit->waiting.push_back(candidates[i]);
      continue;
    }
    if (is_new) missing.push_back(positions[i]);
    if (waits != KeyIndex::kMissing) unit->admitted.push_back(candidates[i]);
  }
  unit->rows.missing = std::move(missing);
}

Status TableUpdate::Reserve(const std::vector<TableWriter*>& tables) {
  std::vector<int64_t> rows(tables.size());
  std::transform(tables.begin(), tables.end(), rows.begin(), [](auto* t) { return t->rows(); });
  for (UpdateUnit& unit : units_) {
    unit.first = rows[unit.table];
    rows[unit.table] += static_cast<int64_t>(unit.rows.missing.size());
  }
  const std::vector<int64_t> waiting = PerTable(units_, tables.size(), WaitingOf);
  for (size_t t = 0; t < tables.size(); ++t) {
    TFHYBRID_RETURN_IF_ERROR(tables[t]->Reserve(rows[t]));
    TableWriter* const waits = tables[t]->waiting();
    if (waits == nullptr) continue;
    TFHYBRID_RETURN_IF_ERROR(waits->Reserve(waits->rows() + waiting[t]));
  }
  return Status::Ok();
}

Status TableUpdate::BringRows(const std::vector<TableWriter*>& tables,
                              const ParallelFor& parallel_for) const {
  std::vector<int64_t> rows;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!tables[t]->chunks().files().used()) continue;
    rows.clear();
    for (const UpdateUnit& unit : units_) {
      if (unit.table != t) continue;
      for (const int64_t row : unit.rows.rows) {
        if (row != KeyIndex::kMissing) rows.push_back(row);
      }
      for (int64_t i = 0; i < MissingOf(unit); ++i) rows.push_back(unit.first + i);
    }
    TFHYBRID_RETURN_IF_ERROR(tables[t]->chunks().files().Bring(rows, parallel_for));
  }
  return Status::Ok();
}

void TableUpdate::Create(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  const std::vector<int64_t> starts = Starts(units_, MissingOf);
  if (starts.back() == 0) return;
  parallel_for(starts.back(), kNewRowCostNs, [&](int64_t begin, int64_t end) {
    ForEachPart(starts, begin, end, [&](size_t u, int64_t first, int64_t last) {
      const UpdateUnit& unit = units_[u];
      tables[unit.table]->Initialise(unit.merged.keys(), unit.rows, unit.first, first, last);
    });
  });
  const std::vector<int64_t> added = PerTable(units_, tables.size(), MissingOf);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (added[t] > 0) tables[t]->AddRows(added[t]);
  }
  // Only one thread at a time may write a table's index, so each thread takes whole tables.
  std::vector<size_t> first_unit(tables.size() + 1, units_.size());
  for (size_t u = units_.size(); u-- > 0;) first_unit[units_[u].table] = u;
  const auto count = static_cast<int64_t>(tables.size());
  parallel_for(count, kIndexCostNs * (starts.back() / count + 1), [&](int64_t begin, int64_t end) {
    for (auto u = first_unit[static_cast<size_t>(begin)]; u < first_unit[static_cast<size_t>(end)];
         ++u) {
      UpdateUnit& unit = units_[u];
      tables[unit.table]->Index(unit.merged.keys(), unit.first, &unit.rows);
    }
  });
}

void TableUpdate::Prepare(const std::vector<TableWriter*>& tables) {
  row_updates_.clear();
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableBeginning& beginning = journal_.beginning(static_cast<int64_t>(t));
    // Where the table has been published no row is left to update.
    RowUpdate update = Gradients(*tables[t]);
    update.optimizer =
        PrepareStep(tables[t]->optimizer(), beginning.learning_rate,
                    static_cast<int64_t>(beginning.version - tables[t]->page().optimizer_start()));
    update.clip_factor = beginning.clip_factor;
    update.decay_after = static_cast<float>(beginning.decay);
    row_updates_.push_back(update);
  }
}

std::vector<SquareSum> TableUpdate::SumSquares(const std::vector<TableWriter*>& tables,
                                               const ParallelFor& parallel_for) const {
  std::vector<SquareSum> of_units(units_.size());
  const auto count = static_cast<int64_t>(units_.size());
  parallel_for(count, kApplyCostNs * (Rows() / count + 1), [&](int64_t begin, int64_t end) {
    for (auto u = static_cast<size_t>(begin); u < static_cast<size_t>(end); ++u) {
      of_units[u] = SquaresOf(units_[u], *tables[units_[u].table]);
    }
  });
  std::vector<SquareSum> sums(tables.size());
  for (size_t u = 0; u < units_.size(); ++u) sums[units_[u].table].Add(of_units[u]);
  return sums;
}

// Includes rows that do not exist yet: their penalties depend on their initial values.
SquareSum TableUpdate::SquaresOf(const UpdateUnit& unit, const TableWriter& table) const {
  const int64_t dim = table.dim();
  std::vector<float> scratch(static_cast<size_t>(ScratchFloats(dim)));
  std::vector<float> fresh(static_cast<size_t>(dim));
  float* const gradient = scratch.data() + MergedKeys::ScratchFloats(dim);
  const RowUpdate update = Gradients(table);
  SquareSum sum;
  auto missing = unit.rows.missing.begin();
  for (int64_t i = 0; i < RowsOf(unit); ++i) {
    const int64_t number = unit.rows.rows[static_cast<size_t>(i)];
    const bool is_new = missing != unit.rows.missing.end() && *missing == i;
    if (is_new) ++missing;
    if (number == KeyIndex::kMissing && !is_new) continue;
    const float* embedding = fresh.data();
    if (is_new) {
      table.FreshEmbedding(unit.merged.keys()[i], fresh);
    } else {
      embedding = table.chunks().Row(number).embedding;
    }
    const Reduced reduced = GradientOf(unit, i, dim, scratch.data());
    RowGradient(update, dim, reduced.sum, reduced.scale, embedding, gradient);
    sum.Add(Squares(gradient, dim));
  }
  return sum;
}

RowUpdate TableUpdate::Gradients(const TableWriter& table) const {
  const UpdateSettings& settings = journal_.settings();
  RowUpdate update;
  update.optimizer.config = table.optimizer();
  if (settings.clipping == Clipping::kValue) update.clip_value = settings.clip_limit;
  update.decay_before = static_cast<float>(table.page().decay());
  return update;
}

void TableUpdate::Apply(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  Prepare(tables);
  const std::vector<int64_t> starts = Starts(units_, RowsOf);
  const int64_t lane_rows = starts.back() / UpdateJournal::kLanes + 1;
  parallel_for(UpdateJournal::kLanes, kApplyCostNs * lane_rows, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) ApplyLane(tables, starts, lane);
  });
  Settle(tables, parallel_for);
  Publish(tables);
  TFHYBRID_FAULT_POINT();
}

void TableUpdate::Settle(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  const PhaseTimer timer(Phase::kSettle);
  const auto count = static_cast<int64_t>(tables.size());
  parallel_for(count, kSettleCostNs, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      const Moment& now = starts_[t].moment;
      // By the table's version: where it has it, all of this was done before.
      if (tables[t]->policy().kind == PolicyKind::kNone || tables[t]->version() >= now.step) {
        continue;
      }
      TableWriter* const waiting = tables[t]->waiting();
      if (waiting != nullptr) {
        CountWaiting(t, waiting);
        waiting->removal().Remove(waiting->removal().FindExpired(now, 1.0));
      }
      const double decay = journal_.beginning(static_cast<int64_t>(t)).decay;
      tables[t]->removal().Remove(tables[t]->removal().FindExpired(now, decay));
    }
  });
}

void TableUpdate::CountWaiting(size_t table, TableWriter* waiting) {
  RowSet set;
  std::vector<int64_t> rows;
  for (const UpdateUnit& unit : units_) {
    if (unit.table != table) continue;
    waiting->CountWaiting(unit.waiting, starts_[table].moment.step);
    waiting->Find(unit.admitted, &set);
    rows.insert(rows.end(), set.rows.begin(), set.rows.end());
  }
  waiting->removal().Remove(std::move(rows));
}

void TableUpdate::Publish(const std::vector<TableWriter*>& tables) {
  for (size_t t = 0; t < tables.size(); ++t) {
    TFHYBRID_FAULT_POINT();
    const TableBeginning& beginning = journal_.beginning(static_cast<int64_t>(t));
    // What waits first: an update is done where its tables have been published.
    if (tables[t]->waiting() != nullptr) {
      tables[t]->waiting()->PublishUpdate(beginning.version, 1.0, 1.0f, beginning.time);
      TFHYBRID_FAULT_POINT();
    }
    tables[t]->PublishUpdate(beginning.version, beginning.decay, beginning.clip_factor,
                             beginning.time);
  }
}

void TableUpdate::ApplyLane(const std::vector<TableWriter*>& tables,
                            const std::vector<int64_t>& starts, int64_t lane) {
  const int64_t total = starts.back();
  const int64_t lane_begin = total * lane / UpdateJournal::kLanes;
  const int64_t lane_end = total * (lane + 1) / UpdateJournal::kLanes;
  std::vector<float> scratch;
  JournalLane journal = journal_.lane(lane);
  const int64_t begin = lane_begin + journal.done();  // which is 0 but after a crash
  ForEachPart(starts, begin, lane_end, [&](size_t u, int64_t first, int64_t last) {
    const UpdateUnit& unit = units_[u];
    const TableWriter& table = *tables[unit.table];
    const RowChunks& chunks = table.chunks();
    scratch.resize(static_cast<size_t>(ScratchFloats(table.dim())));
    float* const changed = scratch.data() + MergedKeys::ScratchFloats(table.dim());
    const RowUpdate& update = row_updates_[unit.table];
    const bool plain = update.IsPlain();
    const Moment& now = starts_[unit.table].moment;
    for (int64_t i = first; i < last; ++i) {
      const auto ahead = static_cast<size_t>(std::min(i + kRowsAhead, last - 1));
      if (unit.rows.rows[ahead] != KeyIndex::kMissing) chunks.FetchRow(unit.rows.rows[ahead]);
      const int64_t number = unit.rows.rows[static_cast<size_t>(i)];
      if (number == KeyIndex::kMissing) {
        journal.Disarm();
        continue;
      }
      const TableRow row = chunks.Row(number);
      journal.Undo(row);
      table.snapshots().BeforeChange(number, row);
      const Reduced reduced = GradientOf(unit, i, row.dim, scratch.data());
      TFHYBRID_FAULT_POINT();
      journal.Arm(row);
      TFHYBRID_FAULT_POINT();
      if (row.history != nullptr) Touch(table.policy(), now, row.history);
      if (plain) {
        ApplyRow(update.optimizer, row.dim, reduced.sum, reduced.scale, row.embedding, row.state);
      } else {
        UpdateRow(update, row.dim, reduced.sum, reduced.scale, row.embedding, row.state, changed);
      }
      TFHYBRID_FAULT_POINT();
      journal.Disarm();
    }
  });
}

}  // namespace tfhybrid
