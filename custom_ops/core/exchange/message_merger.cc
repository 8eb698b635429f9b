#include "core/exchange/message_merger.h"

#include "core/compute/bfloat16.h"
#include "core/placement/key_handle.h"
#include "core/update/contribution.h"
#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

// Rough costs in nanoseconds, for the size of the pieces that threads take.
constexpr int64_t kHostMergeCostNs = 40;
constexpr int64_t kSplitCostNs = 5;
constexpr int64_t kHostSumCostNs = 30;

}  // namespace

void MessageMerger::Merge(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
                          const std::vector<int64_t>& hosts, const Allocations& allocations,
                          int64_t receivers, const ParallelFor& parallel_for) {
  const std::vector<std::vector<RankGradients>> tables =
      ByTable(messages, hosts, schema.tables.size());
  const bool key_handles = JointOf(messages).key_handles;
  const auto split = [&](OwnedUnit* unit) {
    SplitByOwner(unit, receivers == 1 ? nullptr : allocations[unit->table].get(), receivers,
                 key_handles);
  };
  keys_ = key_handles
              ? MergeDistinct(tables, schema.dims, split, parallel_for)
              : parts_.Merge(tables, schema.dims, kHostMergeCostNs, parallel_for, &units_, split);
  Count(schema.tables.size(), receivers);
}

int64_t MessageMerger::MergeDistinct(const std::vector<std::vector<RankGradients>>& tables,
                                     const std::vector<int64_t>& dims,
                                     const std::function<void(OwnedUnit*)>& split,
                                     const ParallelFor& parallel_for) {
  std::vector<std::vector<RankGradients>> of_ranks;
  std::vector<int64_t> of_dims;
  for (size_t t = 0; t < tables.size(); ++t) {
    for (const RankGradients& rank : tables[t]) {
      of_ranks.push_back({rank});
      of_dims.push_back(dims[t]);
    }
  }
  const size_t ranks = tables.front().size();  // of every table
  return parts_.Merge(of_ranks, of_dims, kSplitCostNs, parallel_for, &units_, [&](OwnedUnit* unit) {
    unit->table /= ranks;
    split(unit);
  });
}

void MessageMerger::SplitByOwner(OwnedUnit* unit, const Allocation* allocation, int64_t receivers,
                                 bool key_handles) {
  const Span<const int64_t> keys = unit->merged.keys();
  unit->owners.clear();
  if (allocation == nullptr) {
    unit->counts.assign(static_cast<size_t>(receivers), keys.size());
    return;
  }
  unit->counts.assign(static_cast<size_t>(receivers), 0);
  for (const int64_t key : keys) {
    const int64_t owner = key_handles ? KeyHandle::OwnerOf(key) : allocation->OwnerOf(key);
    unit->owners.push_back(static_cast<uint16_t>(owner));
    ++unit->counts[static_cast<size_t>(owner)];
  }
}

void MessageMerger::Count(size_t tables, int64_t receivers) {
  counts_.assign(static_cast<size_t>(receivers), std::vector<int64_t>(tables, 0));
  for (OwnedUnit& unit : units_) {
    unit.starts.clear();
    for (size_t receiver = 0; receiver < counts_.size(); ++receiver) {
      int64_t& count = counts_[receiver][unit.table];
      unit.starts.push_back(count);
      count += unit.counts[receiver];
    }
  }
}

void MessageMerger::Fill(const MessageSchema& schema, const std::vector<MessageBuilder>& builders,
                         const ParallelFor& parallel_for) const {
  const auto count = static_cast<int64_t>(units_.size());
  parallel_for(count, kHostSumCostNs * (keys_ / count + 1), [&](int64_t begin, int64_t end) {
    for (auto u = static_cast<size_t>(begin); u < static_cast<size_t>(end); ++u) {
      FillUnit(units_[u], schema.dims[units_[u].table], builders);
    }
  });
}

void MessageMerger::FillUnit(const OwnedUnit& unit, int64_t dim,
                             const std::vector<MessageBuilder>& builders) {
  const auto table = static_cast<int64_t>(unit.table);
  const bool narrow = (builders.front().header()->form & kBfloat16) != 0;
  const Span<const int64_t> keys = unit.merged.keys();
  std::vector<int64_t> at = unit.starts;
  std::vector<float> scratch(static_cast<size_t>(MergedKeys::ScratchFloats(dim)));
  const auto write = [&](size_t receiver, int64_t i, const float* sum) {
    const MessageBuilder& builder = builders[receiver];
    const int64_t to = at[receiver]++;
    builder.keys(table)[to] = keys[i];
    builder.ranks(table)[to] = static_cast<uint16_t>(unit.merged.Count(i));
    if (narrow) {
      ToBfloat16(sum, dim, builder.rounded(table) + to * dim);
    } else {
      CopyFloats(sum, dim, builder.gradients(table) + to * dim);
    }
  };
  for (int64_t i = 0; i < keys.size(); ++i) {
    const float* sum = unit.merged.Sum(i, scratch.data());
    if (!unit.owners.empty()) {
      write(unit.owners[static_cast<size_t>(i)], i, sum);
      continue;
    }
    for (size_t receiver = 0; receiver < builders.size(); ++receiver) write(receiver, i, sum);
  }
}

}  // namespace tfhybrid
