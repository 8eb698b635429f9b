#include "core/sync/table_update.h"

namespace tfhybrid {
namespace {

// Rough costs in nanoseconds, for the size of the pieces that threads take.
constexpr int64_t kMergeCostNs = 50000;
constexpr int64_t kApplyCostNs = 60;

}  // namespace

Result<Reduction> ParseReduction(const std::string& name) {
  if (name == "frequency") return Reduction::kFrequency;
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  return Status::Error(StatusCode::kInvalidArgument,
                       "reduction is 'frequency', 'sum' or 'mean'. Received: '", name, "'");
}

float TableUpdate::Scale(uint32_t count) const {
  switch (reduction_) {
    case Reduction::kFrequency:
      return 1.0f / static_cast<float>(count);
    case Reduction::kMean:
      return 1.0f / static_cast<float>(hosts_.size());
    case Reduction::kSum:
      return 1.0f;
  }
  return 1.0f;
}

void TableUpdate::Merge(const std::vector<GradientMessage>& messages, size_t table, int64_t dim,
                        Work* work) {
  const size_t ranks = messages.size();
  int64_t occurrences = 0;
  for (const GradientMessage& message : messages) occurrences += message.keys[table].size();
  work->merged.Reset(dim, occurrences);
  const bool one_host = hosts_.front() == hosts_.back();
  for (size_t first = 0; first < ranks;) {
    size_t end = first;
    while (end < ranks && hosts_[end] == hosts_[first]) ++end;
    // One host's sum is the whole sum, and one rank's sum its host's.
    const bool direct = one_host || end - first == 1;
    GradientMerger* merger = direct ? &work->merged : &work->host;
    if (!direct) merger->Reset(dim, occurrences);
    for (size_t rank = first; rank < end; ++rank) {
      merger->Add(messages[rank].keys[table], messages[rank].gradients[table], nullptr);
    }
    if (!direct) work->merged.Add(merger->keys(), merger->sums(), merger->counts());
    first = end;
  }
  const int64_t keys = work->merged.keys().size();
  work->scales.resize(static_cast<size_t>(keys));
  for (int64_t i = 0; i < keys; ++i) {
    work->scales[static_cast<size_t>(i)] = Scale(work->merged.counts()[i]);
  }
}

Status TableUpdate::Run(const std::vector<GradientMessage>& messages,
                        Span<const float> learning_rates, const std::vector<TableWriter*>& tables,
                        const ParallelFor& parallel_for) {
  for (const TableWriter* table : tables) {
    if (table->optimizer().kind != OptimizerKind::kNone) continue;
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", table->name(),
                         "' has no optimizer: was the DistributedOptimizer built for it?");
  }
  const auto count = static_cast<int64_t>(tables.size());
  work_.resize(tables.size());
  parallel_for(count, kMergeCostNs, [&](int64_t begin, int64_t end) {
    for (int64_t table = begin; table < end; ++table) {
      const auto t = static_cast<size_t>(table);
      Merge(messages, t, tables[t]->dim(), &work_[t]);
      work_[t].prepared = tables[t]->Prepare(work_[t].merged.keys(), &work_[t].rows);
    }
  });
  for (const Work& work : work_) {
    TFHYBRID_RETURN_IF_ERROR(work.prepared);
  }
  parallel_for(count, kMergeCostNs, [&](int64_t begin, int64_t end) {
    for (int64_t table = begin; table < end; ++table) {
      const auto t = static_cast<size_t>(table);
      tables[t]->CreateRows(work_[t].merged.keys(), &work_[t].rows, RunInline);
    }
  });
  Apply(learning_rates, tables, parallel_for);
  for (TableWriter* table : tables) table->Publish();
  return Status::Ok();
}

void TableUpdate::Apply(Span<const float> learning_rates, const std::vector<TableWriter*>& tables,
                        const ParallelFor& parallel_for) {
  std::vector<int64_t> starts = {0};
  std::vector<OptimizerStep> steps;
  for (size_t t = 0; t < tables.size(); ++t) {
    starts.push_back(starts.back() + work_[t].merged.keys().size());
    steps.push_back(PrepareStep(tables[t]->optimizer(), learning_rates[static_cast<int64_t>(t)],
                                static_cast<int64_t>(tables[t]->version()) + 1));
  }
  parallel_for(starts.back(), kApplyCostNs, [&](int64_t begin, int64_t end) {
    ForEachPart(starts, begin, end, [&](size_t t, int64_t first, int64_t last) {
      tables[t]->Apply(steps[t], work_[t].rows, work_[t].merged.sums(), work_[t].scales.data(),
                       first, last);
    });
  });
}

}  // namespace tfhybrid
