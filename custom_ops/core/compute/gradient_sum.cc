#include "core/compute/gradient_sum.h"

#include "core/util/copy_floats.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

TFHYBRID_SIMD void AddParts(const std::vector<KeyGradients>& parts, const uint32_t* numbers,
                            int64_t dim, float* sums) {
  int64_t known = 0;
  for (const KeyGradients& part : parts) {
    RowCursor<const float> cursor(part.gradients, part.layout, 0);
    for (int64_t i = 0; i < part.keys.size(); ++i) {
      const float* gradient = cursor.Next();
      const int64_t number = *numbers++;
      float* sum = sums + number * dim;
      if (number == known) {
        CopyFloats(gradient, dim, sum);
        ++known;
      } else {
        for (int64_t column = 0; column < dim; ++column) sum[column] += gradient[column];
      }
    }
  }
}

}  // namespace

void GradientSum::Number(const std::vector<KeyGradients>& parts) {
  int64_t occurrences = 0;
  for (const KeyGradients& part : parts) occurrences += part.keys.size();
  unique_.Reset(occurrences);
  numbers_.clear();
  numbers_.reserve(static_cast<size_t>(occurrences));
  for (const KeyGradients& part : parts) {
    for (const int64_t key : part.keys) {
      numbers_.push_back(static_cast<uint32_t>(unique_.Number(key)));
    }
  }
}

void GradientSum::Sum(const std::vector<KeyGradients>& parts, int64_t dim, float* sums) const {
  AddParts(parts, numbers_.data(), dim, sums);
}

}  // namespace tfhybrid
