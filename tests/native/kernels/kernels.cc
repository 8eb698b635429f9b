#include "kernels/kernels.h"

#include <cstring>
#include <vector>

#include "core/compute/bags.h"
#include "core/compute/gradient_sum.h"
#include "core/compute/merged_keys.h"

namespace tfhybrid {
namespace {

void SumOneKey(const float* rows, int64_t count, int64_t dim, float* sum) {
  const std::vector<int64_t> keys(static_cast<size_t>(count), 7);
  const std::vector<KeyGradients> parts = {{keys, rows, RowLayout::Array(dim)}};
  GradientSum gradients;
  gradients.Number(parts);
  gradients.Sum(parts, dim, sum);
}

void MergeRanks(const float* rows, int64_t count, int64_t dim, float* sum) {
  const int64_t key = 7;
  std::vector<RankGradients> ranks;
  for (int64_t rank = 0; rank < count; ++rank) {
    ranks.push_back({Span<const int64_t>(&key, 1), rows + rank * dim, rank / 2});
  }
  MergedKeys merged;
  merged.Merge(ranks, dim);
  std::vector<float> scratch(static_cast<size_t>(MergedKeys::ScratchFloats(dim)));
  std::memcpy(sum, merged.Sum(0, scratch.data()), static_cast<size_t>(dim) * sizeof(float));
}

const std::vector<float> kWeights = {0.3f, 1.7f, 0.9f, 2.1f};

Bags OneBag(const std::vector<int64_t>& splits) {
  return {Combiner::kMean, splits, kWeights.data()};
}

void CombineBag(const float* rows, int64_t count, int64_t dim, float* embedding) {
  const std::vector<int64_t> splits = {0, count};
  BagCombiner combiner(OneBag(splits), 0, 1, dim,
                       RowCursor<float>(embedding, RowLayout::Array(dim), 0));
  for (int64_t i = 0; i < count; ++i) combiner.Add(rows + i * dim);
}

void SpreadGradient(const float* gradient, int64_t count, int64_t dim, float* sum) {
  const std::vector<int64_t> splits = {0, count};
  const std::vector<int64_t> keys(static_cast<size_t>(count), 7);
  const Bags bags = OneBag(splits);
  KeyGradients part = {keys, gradient, RowLayout::Array(dim)};
  part.bags = &bags;
  GradientSum gradients;
  gradients.Number({part});
  gradients.Sum({part}, dim, sum);
}

}  // namespace
}  // namespace tfhybrid

tfhybrid::Kernels tfhybrid_test_kernels() {
  return {tfhybrid::ApplyRow,      tfhybrid::UpdateRow,     tfhybrid::Squares,
          tfhybrid::InitializeRow, tfhybrid::SumOneKey,     tfhybrid::MergeRanks,
          tfhybrid::CombineBag,    tfhybrid::SpreadGradient};
}
