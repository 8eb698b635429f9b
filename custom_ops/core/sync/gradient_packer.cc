#include "core/sync/gradient_packer.h"

#include <algorithm>

namespace tfhybrid {
namespace {

constexpr int64_t kKeyCostNs = 20;

}  // namespace

const std::vector<int64_t>& GradientPacker::Number(std::vector<KeyGradients> tables,
                                                   const ParallelFor& parallel_for) {
  int64_t keys = 0;
  tables_.clear();
  for (KeyGradients& table : tables) {
    keys += table.keys.size();
    tables_.push_back({std::move(table)});
  }
  const auto count = static_cast<int64_t>(tables_.size());
  cost_ = kKeyCostNs * (keys / std::max<int64_t>(count, 1) + 1);
  sums_.resize(tables_.size());
  counts_.resize(tables_.size());
  parallel_for(count, cost_, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      sums_[t].Number(tables_[t]);
      counts_[t] = sums_[t].keys().size();
    }
  });
  return counts_;
}

void GradientPacker::Fill(const MessageSchema& schema, const MessageBuilder& message,
                          const ParallelFor& parallel_for) const {
  parallel_for(static_cast<int64_t>(sums_.size()), cost_, [&](int64_t begin, int64_t end) {
    for (int64_t table = begin; table < end; ++table) {
      const auto t = static_cast<size_t>(table);
      const Span<const int64_t> keys = sums_[t].keys();
      std::copy(keys.begin(), keys.end(), message.keys(table));
      sums_[t].Sum(tables_[t], schema.dims[t], message.gradients(table));
    }
  });
}

}  // namespace tfhybrid
