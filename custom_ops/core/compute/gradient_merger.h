// GradientMerger: sums gradients by key and counts the contributors of each key.
//
// A contributor is whatever one Add() call stands for: an occurrence within a rank's batch, a rank
// of a host, a host of the job. Sums are formed in the order of the calls and, within one, of the
// keys; so the bits depend on that order and on nothing else. Keys come out in order of first
// occurrence. Reusable scratch; not thread-safe.
#ifndef TFHYBRID_CORE_COMPUTE_GRADIENT_MERGER_H_
#define TFHYBRID_CORE_COMPUTE_GRADIENT_MERGER_H_

#include <cstdint>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/util/span.h"

namespace tfhybrid {

class GradientMerger {
 public:
  // Forgets everything and makes room for `most` occurrences of keys with gradients of `dim`
  // floats.
  void Reset(int64_t dim, int64_t most);

  // Adds gradients[i * dim] to the sum of keys[i], and counts[i] (or 1 where `counts` is null) to
  // its count.
  void Add(Span<const int64_t> keys, const float* gradients, const uint32_t* counts);

  Span<const int64_t> keys() const { return unique_.keys(); }
  const float* sums() const { return sums_.data(); }
  const uint32_t* counts() const { return counts_.data(); }

 private:
  int64_t dim_ = 0;
  UniqueKeys unique_;
  std::vector<float> sums_;       // [keys, dim]
  std::vector<uint32_t> counts_;  // [keys]
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_GRADIENT_MERGER_H_
