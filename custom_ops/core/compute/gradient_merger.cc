#include "core/compute/gradient_merger.h"

namespace tfhybrid {

void GradientMerger::Reset(int64_t dim, int64_t most) {
  dim_ = dim;
  unique_.Reset(most);
  sums_.clear();
  sums_.reserve(static_cast<size_t>(most * dim));
  counts_.clear();
  counts_.reserve(static_cast<size_t>(most));
}

void GradientMerger::Add(Span<const int64_t> keys, const float* gradients, const uint32_t* counts) {
  for (int64_t i = 0; i < keys.size(); ++i) {
    const float* gradient = gradients + i * dim_;
    const uint32_t count = counts == nullptr ? 1 : counts[i];
    const int64_t known = unique_.size();
    const int64_t number = unique_.Number(keys[i]);
    if (number == known) {
      sums_.insert(sums_.end(), gradient, gradient + dim_);
      counts_.push_back(count);
      continue;
    }
    float* sum = sums_.data() + number * dim_;
    for (int64_t column = 0; column < dim_; ++column) sum[column] += gradient[column];
    counts_[static_cast<size_t>(number)] += count;
  }
}

}  // namespace tfhybrid
