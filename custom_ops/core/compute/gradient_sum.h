// The distinct keys of a batch, and the sum of each key's gradients.
//
// There are two steps: the first one numbers the keys, so that the caller can provide space for
// the sums. Keys are in order of first occurrence. A sum is formed in order of occurrence, so its
// bits depend only on the batch.
#ifndef TFHYBRID_CORE_COMPUTE_GRADIENT_SUM_H_
#define TFHYBRID_CORE_COMPUTE_GRADIENT_SUM_H_

#include <cstdint>
#include <vector>

#include "core/compute/bags.h"
#include "core/compute/unique_keys.h"
#include "core/util/row_layout.h"
#include "core/util/span.h"

namespace tfhybrid {

// Keys, and the location of the gradient of each key or bag.
struct KeyGradients {
  Span<const int64_t> keys;
  const float* gradients;
  RowLayout layout;
  bool distinct = false;       // no key comes twice
  const Bags* bags = nullptr;  // null: each key has a gradient of its own
};

// The gradients of a part of a batch: as above, with the number of each occurrence's key instead of
// the key.
struct NumberedGradients {
  Span<const uint32_t> numbers;
  const float* gradients;
  RowLayout layout;
  const Bags* bags = nullptr;
};

// Writes the sum of each key in [begin, end) to sums + number * dim. Other sums may be written
// meanwhile. False, with sums unfinished, unless these numbers are there, in order of first
// occurrence. REQUIRES: end <= the number of sums.
bool SumGradients(const std::vector<NumberedGradients>& parts, int64_t begin, int64_t end,
                  int64_t dim, float* sums);

// Both steps for a batch. Reusable scratch; not thread-safe.
class GradientSum {
 public:
  // First step. The batch's keys are those of all `parts`, one after the other.
  void Number(const std::vector<KeyGradients>& parts);

  Span<const int64_t> keys() const { return unique_.keys(); }

  // Second step: writes the sum of keys()[i] to sums + i * dim. REQUIRES: `parts` as in Number().
  void Sum(const std::vector<KeyGradients>& parts, int64_t dim, float* sums) const;

 private:
  UniqueKeys unique_;
  std::vector<uint32_t> numbers_;  // of each occurrence: its key's index in keys()
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_GRADIENT_SUM_H_
