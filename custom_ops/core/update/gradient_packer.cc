#include "core/update/gradient_packer.h"

#include <algorithm>

#include "core/util/copy_floats.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

constexpr int64_t kNumberCostNs = 20;
constexpr int64_t kCopyCostNs = 10;

TFHYBRID_SIMD void Multiply(int64_t count, float factor, float* values) {
  if (factor == 1.0f) return;
  for (int64_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace

const std::vector<int64_t>& GradientPacker::Number(std::vector<std::vector<KeyGradients>> tables,
                                                   const ParallelFor& parallel_for) {
  int64_t keys = 0;
  const auto count = static_cast<int64_t>(tables.size());
  tables_.resize(tables.size());
  counts_.assign(tables.size(), 0);
  for (size_t t = 0; t < tables.size(); ++t) {
    tables_[t].batches = std::move(tables[t]);
    for (const KeyGradients& batch : tables_[t].batches) counts_[t] += batch.keys.size();
    if (!tables_[t].distinct()) keys += counts_[t];
  }
  cost_ = kNumberCostNs * (keys / std::max<int64_t>(count, 1) + 1);
  parallel_for(count, cost_, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      if (tables_[t].distinct()) continue;
      tables_[t].sum.Number(tables_[t].batches);
      counts_[t] = tables_[t].sum.keys().size();
    }
  });
  return counts_;
}

void GradientPacker::Fill(const MessageSchema& schema, const MessageBuilder& message, float factor,
                          const ParallelFor& parallel_for) const {
  Copy(schema, message, factor, parallel_for);
  parallel_for(static_cast<int64_t>(tables_.size()), cost_, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TableBatches& table = tables_[static_cast<size_t>(i)];
      if (table.distinct()) continue;
      const Span<const int64_t> keys = table.sum.keys();
      std::copy(keys.begin(), keys.end(), message.keys(i));
      const int64_t dim = schema.dims[static_cast<size_t>(i)];
      table.sum.Sum(table.batches, dim, message.gradients(i));
      Multiply(keys.size() * dim, factor, message.gradients(i));
    }
  });
}

// What is distinct goes over as it is, cut anywhere.
void GradientPacker::Copy(const MessageSchema& schema, const MessageBuilder& message, float factor,
                          const ParallelFor& parallel_for) const {
  std::vector<int64_t> starts = {0};
  for (size_t t = 0; t < tables_.size(); ++t) {
    starts.push_back(starts.back() + (tables_[t].distinct() ? counts_[t] : 0));
  }
  parallel_for(starts.back(), kCopyCostNs, [&](int64_t begin, int64_t end) {
    ForEachPart(starts, begin, end, [&](size_t t, int64_t first, int64_t last) {
      const KeyGradients& from = tables_[t].batches.front();
      const auto table = static_cast<int64_t>(t);
      const int64_t dim = schema.dims[t];
      std::copy(from.keys.begin() + first, from.keys.begin() + last, message.keys(table) + first);
      float* to = message.gradients(table) + first * dim;
      CopyFloats(from.gradients + first * dim, (last - first) * dim, to);
      Multiply((last - first) * dim, factor, to);
    });
  });
}

}  // namespace tfhybrid
