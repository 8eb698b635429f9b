#include "core/sync/table_update.h"

#include <algorithm>

#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

// Keys that make a unit of their own worth while.
constexpr int64_t kUnitKeys = 16384;
// Rough costs in nanoseconds, for the size of the pieces that threads take.
constexpr int64_t kMergeCostNs = 60;
constexpr int64_t kInitialiseCostNs = 100;
constexpr int64_t kIndexCostNs = 60;
constexpr int64_t kApplyCostNs = 80;
// How far ahead of the row in hand the next ones are fetched.
constexpr int64_t kPrefetchDistance = 8;

// For the sum of a key's gradients, and what it is changed into.
int64_t ScratchFloats(int64_t dim) { return MergedKeys::ScratchFloats(dim) + dim; }

template <typename Units, typename Size>
std::vector<int64_t> Starts(const Units& units, const Size& size) {
  std::vector<int64_t> starts = {0};
  for (const auto& unit : units) starts.push_back(starts.back() + size(unit));
  return starts;
}

}  // namespace

float TableUpdate::Scale(uint32_t count) const {
  switch (journal_.settings().reduction) {
    case Reduction::kFrequency:
      return 1.0f / static_cast<float>(count);
    case Reduction::kMean:
      return 1.0f / static_cast<float>(samples_);
    case Reduction::kSum:
      return 1.0f;
  }
  return 1.0f;
}

Status TableUpdate::Stage(const std::vector<GradientMessage>& messages,
                          const std::vector<TableWriter*>& tables,
                          const ParallelFor& parallel_for) {
  for (const TableWriter* table : tables) {
    if (table->optimizer().kind != OptimizerKind::kNone) continue;
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", table->name(),
                         "' has no optimizer: was the DistributedOptimizer built for it?");
  }
  Plan(messages, tables, parallel_for);
  return Reserve(tables);
}

std::vector<int64_t> TableUpdate::NewRows(size_t tables) const {
  std::vector<int64_t> rows(tables, 0);
  for (const Unit& unit : units_) {
    rows[unit.table] += static_cast<int64_t>(unit.rows.missing.size());
  }
  return rows;
}

int64_t TableUpdate::Keys() const {
  int64_t keys = 0;
  for (const Unit& unit : units_) keys += unit.merged.keys().size();
  return keys;
}

Status TableUpdate::Commit(const StepNumbers& numbers, const std::vector<TableWriter*>& tables,
                           const ParallelFor& parallel_for) {
  for (TableWriter* table : tables) table->NormalizeDecay(parallel_for);
  TFHYBRID_FAULT_POINT();
  TFHYBRID_RETURN_IF_ERROR(Begin(numbers, tables));
  TFHYBRID_FAULT_POINT();
  Create(tables, parallel_for);
  Apply(tables, parallel_for);
  return Status::Ok();
}

Status TableUpdate::Begin(const StepNumbers& numbers, const std::vector<TableWriter*>& tables) {
  const Clipping clipping = journal_.settings().clipping;
  const bool by_norm = clipping == Clipping::kNorm || clipping == Clipping::kGlobalNorm;
  // A step of which nothing is applied does not decay either.
  const bool applies = !skip_ && samples_ > 0;
  std::vector<TableBeginning> beginnings;
  for (size_t t = 0; t < tables.size(); ++t) {
    const float rate = numbers.learning_rates[t];
    const double shrinkage = double{rate} * tables[t]->optimizer().weight_decay;
    if (!(shrinkage < 1.0)) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", tables[t]->name(),
                           "': learning rate times weight_decay must be below 1. Received: ", rate,
                           " times ", tables[t]->optimizer().weight_decay);
    }
    beginnings.push_back({tables[t]->version() + 1,
                          tables[t]->decay() * (applies ? 1.0 - shrinkage : 1.0), rate,
                          by_norm ? kUnknownFactor : 1.0f});
    if (!numbers.clip_factors.empty()) beginnings.back().clip_factor = numbers.clip_factors[t];
  }
  journal_.Begin(beginnings, numbers.dense_squares);
  return Status::Ok();
}

Status TableUpdate::Resume(const std::vector<GradientMessage>& messages,
                           const std::vector<TableWriter*>& tables,
                           const ParallelFor& parallel_for) {
  Plan(messages, tables, parallel_for);
  TFHYBRID_RETURN_IF_ERROR(journal_.CheckLanes(Keys()));
  TFHYBRID_RETURN_IF_ERROR(Reserve(tables));
  Create(tables, parallel_for);
  Apply(tables, parallel_for);
  return Status::Ok();
}

void TableUpdate::Plan(const std::vector<GradientMessage>& messages,
                       const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  std::vector<std::vector<RankGradients>> ranks(tables.size());
  skip_ = false;
  samples_ = 0;
  for (const GradientMessage& message : messages) {
    skip_ = skip_ || message.header.skip != 0;
    samples_ += message.header.samples;
  }
  size_t used = 0;
  int64_t total = 0;
  for (size_t table = 0; table < tables.size(); ++table) {
    int64_t keys = 0;
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      const GradientMessage& message = messages[rank];
      ranks[table].push_back({skip_ ? Span<const int64_t>() : message.keys[table],
                              message.gradients[table], journal_.settings().hosts[rank],
                              message.ranks[table]});
      keys += ranks[table].back().keys.size();
    }
    const int64_t parts = 1 + keys / kUnitKeys;
    for (int64_t part = 0; part < parts; ++part, ++used) {
      if (used == units_.size()) units_.emplace_back();
      units_[used].table = table;
      units_[used].part = part;
      units_[used].parts = parts;
    }
    total += keys;
  }
  units_.resize(used);
  const auto count = static_cast<int64_t>(used);
  parallel_for(count, kMergeCostNs * (total / count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      Unit& unit = units_[static_cast<size_t>(u)];
      unit.merged.Merge(ranks[unit.table], tables[unit.table]->dim(), unit.part, unit.parts);
      tables[unit.table]->Find(unit.merged.keys(), &unit.rows);
    }
  });
}

Status TableUpdate::Reserve(const std::vector<TableWriter*>& tables) {
  std::vector<int64_t> rows;
  for (const TableWriter* table : tables) rows.push_back(table->rows());
  for (Unit& unit : units_) {
    unit.first = rows[unit.table];
    rows[unit.table] += static_cast<int64_t>(unit.rows.missing.size());
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    TFHYBRID_RETURN_IF_ERROR(tables[t]->Reserve(rows[t]));
  }
  return Status::Ok();
}

void TableUpdate::Create(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  const std::vector<int64_t> starts = Starts(
      units_, [](const Unit& unit) { return static_cast<int64_t>(unit.rows.missing.size()); });
  if (starts.back() == 0) return;
  parallel_for(starts.back(), kInitialiseCostNs, [&](int64_t begin, int64_t end) {
    ForEachPart(starts, begin, end, [&](size_t u, int64_t first, int64_t last) {
      const Unit& unit = units_[u];
      tables[unit.table]->Initialise(unit.merged.keys(), unit.rows, unit.first, first, last);
    });
  });
  const std::vector<int64_t> added = NewRows(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (added[t] > 0) tables[t]->AddRows(added[t]);
  }
  // Of one table's units only one thread at a time may write the index: tables are the pieces.
  std::vector<size_t> first_unit(tables.size() + 1, units_.size());
  for (size_t u = units_.size(); u-- > 0;) first_unit[units_[u].table] = u;
  const auto count = static_cast<int64_t>(tables.size());
  parallel_for(count, kIndexCostNs * (starts.back() / count + 1), [&](int64_t begin, int64_t end) {
    for (auto u = first_unit[static_cast<size_t>(begin)]; u < first_unit[static_cast<size_t>(end)];
         ++u) {
      Unit& unit = units_[u];
      tables[unit.table]->Index(unit.merged.keys(), unit.first, &unit.rows);
    }
  });
}

void TableUpdate::Prepare(const std::vector<TableWriter*>& tables) {
  const UpdateSettings& settings = journal_.settings();
  row_updates_.clear();
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableBeginning& beginning = journal_.beginning(static_cast<int64_t>(t));
    RowUpdate update = {PrepareStep(tables[t]->optimizer(), beginning.learning_rate,
                                    static_cast<int64_t>(beginning.version))};
    if (settings.clipping == Clipping::kValue) update.clip_value = settings.clip_limit;
    update.clip_factor = beginning.clip_factor;
    // Where the table has been published no row is left to update.
    update.decay_before = static_cast<float>(tables[t]->decay());
    update.decay_after = static_cast<float>(beginning.decay);
    row_updates_.push_back(update);
  }
}

void TableUpdate::FindClipFactors(const std::vector<TableWriter*>& tables,
                                  const ParallelFor& parallel_for) {
  bool known = true;
  for (const RowUpdate& update : row_updates_)
    known = known && update.clip_factor != kUnknownFactor;
  if (known) return;
  const UpdateSettings& settings = journal_.settings();
  const std::vector<SquareSum> sums = SumSquares(tables, parallel_for);
  SquareSum all;
  for (const SquareSum& sum : sums) all.Add(sum);
  const double global = all.Total() + journal_.dense_squares();
  for (size_t t = 0; t < tables.size(); ++t) {
    const double squares = settings.clipping == Clipping::kNorm ? sums[t].Total() : global;
    row_updates_[t].clip_factor = ClipFactor(squares, settings.clip_limit);
    TFHYBRID_FAULT_POINT();
    journal_.SetClipFactor(static_cast<int64_t>(t), row_updates_[t].clip_factor);
  }
}

std::vector<SquareSum> TableUpdate::SumSquares(const std::vector<TableWriter*>& tables,
                                               const ParallelFor& parallel_for) const {
  std::vector<SquareSum> of_units(units_.size());
  const auto count = static_cast<int64_t>(units_.size());
  parallel_for(count, kApplyCostNs * (Keys() / count + 1), [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    for (auto u = static_cast<size_t>(begin); u < static_cast<size_t>(end); ++u) {
      const Unit& unit = units_[u];
      const TableWriter& table = *tables[unit.table];
      scratch.resize(static_cast<size_t>(ScratchFloats(table.dim())));
      float* const gradient = scratch.data() + MergedKeys::ScratchFloats(table.dim());
      for (int64_t i = 0; i < unit.merged.keys().size(); ++i) {
        const TableRow row = table.Row(unit.rows.rows[static_cast<size_t>(i)]);
        RowGradient(row_updates_[unit.table], row.dim, unit.merged.Sum(i, scratch.data()),
                    Scale(unit.merged.Count(i)), row.embedding, gradient);
        of_units[u].Add(Squares(gradient, row.dim));
      }
    }
  });
  std::vector<SquareSum> sums(tables.size());
  for (size_t u = 0; u < units_.size(); ++u) sums[units_[u].table].Add(of_units[u]);
  return sums;
}

void TableUpdate::Apply(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  Prepare(tables);
  FindClipFactors(tables, parallel_for);
  const std::vector<int64_t> starts =
      Starts(units_, [](const Unit& unit) { return unit.merged.keys().size(); });
  const int64_t lane_rows = starts.back() / UpdateJournal::kLanes + 1;
  parallel_for(UpdateJournal::kLanes, kApplyCostNs * lane_rows, [&](int64_t begin, int64_t end) {
    for (int64_t lane = begin; lane < end; ++lane) ApplyLane(tables, starts, lane);
  });
  for (size_t t = 0; t < tables.size(); ++t) {
    TFHYBRID_FAULT_POINT();
    const TableBeginning& beginning = journal_.beginning(static_cast<int64_t>(t));
    tables[t]->PublishUpdate(beginning.version, beginning.decay, beginning.clip_factor);
  }
  TFHYBRID_FAULT_POINT();
  journal_.End();
}

void TableUpdate::ApplyLane(const std::vector<TableWriter*>& tables,
                            const std::vector<int64_t>& starts, int64_t lane) {
  const int64_t total = starts.back();
  const int64_t lane_begin = total * lane / UpdateJournal::kLanes;
  const int64_t lane_end = total * (lane + 1) / UpdateJournal::kLanes;
  std::vector<float> scratch;
  JournalLane journal = journal_.lane(lane);
  // Not 0 only after a crash.
  const int64_t done = journal.done();
  ForEachPart(starts, lane_begin + done, lane_end, [&](size_t u, int64_t first, int64_t last) {
    const Unit& unit = units_[u];
    const TableWriter& table = *tables[unit.table];
    scratch.resize(static_cast<size_t>(ScratchFloats(table.dim())));
    float* const changed = scratch.data() + MergedKeys::ScratchFloats(table.dim());
    const RowUpdate& update = row_updates_[unit.table];
    const bool plain = update.IsPlain();
    for (int64_t i = first; i < last; ++i) {
      const int64_t ahead = std::min(i + kPrefetchDistance, last - 1);
      table.FetchRow(unit.rows.rows[static_cast<size_t>(ahead)]);
      const int64_t number = unit.rows.rows[static_cast<size_t>(i)];
      const TableRow row = table.Row(number);
      journal.Undo(row);
      table.BeforeChange(number, row);
      const float* gradient = unit.merged.Sum(i, scratch.data());
      TFHYBRID_FAULT_POINT();
      journal.Arm(row);
      TFHYBRID_FAULT_POINT();
      const float scale = Scale(unit.merged.Count(i));
      if (plain) {
        ApplyRow(update.optimizer, row.dim, gradient, scale, row.embedding, row.state);
      } else {
        UpdateRow(update, row.dim, gradient, scale, row.embedding, row.state, changed);
      }
      TFHYBRID_FAULT_POINT();
      journal.Disarm();
    }
  });
}

}  // namespace tfhybrid
