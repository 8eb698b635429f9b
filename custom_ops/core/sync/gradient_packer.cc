#include "core/sync/gradient_packer.h"

#include <algorithm>

#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

constexpr int64_t kNumberCostNs = 20;
constexpr int64_t kCopyCostNs = 10;

}  // namespace

const std::vector<int64_t>& GradientPacker::Number(std::vector<KeyGradients> tables,
                                                   const ParallelFor& parallel_for) {
  int64_t keys = 0;
  const auto count = static_cast<int64_t>(tables.size());
  tables_.resize(tables.size());
  counts_.resize(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    counts_[t] = tables[t].keys.size();
    if (!tables[t].distinct) keys += counts_[t];
    tables_[t].gradients = {std::move(tables[t])};
  }
  cost_ = kNumberCostNs * (keys / std::max<int64_t>(count, 1) + 1);
  parallel_for(count, cost_, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      if (tables_[t].distinct()) continue;
      tables_[t].sum.Number(tables_[t].gradients);
      counts_[t] = tables_[t].sum.keys().size();
    }
  });
  return counts_;
}

void GradientPacker::Fill(const MessageSchema& schema, const MessageBuilder& message,
                          const ParallelFor& parallel_for) const {
  Copy(schema, message, parallel_for);
  parallel_for(static_cast<int64_t>(tables_.size()), cost_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Table& table = tables_[static_cast<size_t>(i)];
      if (table.distinct()) continue;
      const Span<const int64_t> keys = table.sum.keys();
      std::copy(keys.begin(), keys.end(), message.keys(i));
      table.sum.Sum(table.gradients, schema.dims[static_cast<size_t>(i)], message.gradients(i));
    }
  });
}

// What is distinct goes over as it is, cut anywhere.
void GradientPacker::Copy(const MessageSchema& schema, const MessageBuilder& message,
                          const ParallelFor& parallel_for) const {
  std::vector<int64_t> starts = {0};
  for (size_t t = 0; t < tables_.size(); ++t) {
    starts.push_back(starts.back() + (tables_[t].distinct() ? counts_[t] : 0));
  }
  parallel_for(starts.back(), kCopyCostNs, [&](int64_t begin, int64_t end) {
    ForEachPart(starts, begin, end, [&](size_t t, int64_t first, int64_t last) {
      const KeyGradients& from = tables_[t].gradients.front();
      const auto table = static_cast<int64_t>(t);
      const int64_t dim = schema.dims[t];
      std::copy(from.keys.begin() + first, from.keys.begin() + last, message.keys(table) + first);
      CopyFloats(from.gradients + first * dim, (last - first) * dim,
                 message.gradients(table) + first * dim);
    });
  });
}

}  // namespace tfhybrid
