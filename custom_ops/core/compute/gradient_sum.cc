#include "core/compute/gradient_sum.h"

#include "core/util/copy_floats.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// Adds a part to the sums, of which `known` have begun.
TFHYBRID_SIMD void AddRows(const KeyGradients& part, const uint32_t* numbers, int64_t dim,
                           float* sums, int64_t* known) {
  RowCursor<const float> cursor(part.gradients, part.layout, 0);
  for (int64_t i = 0; i < part.keys.size(); ++i) {
    const float* gradient = cursor.Next();
    const int64_t number = numbers[i];
    float* sum = sums + number * dim;
    if (number == *known) {
      CopyFloats(gradient, dim, sum);
      ++*known;
    } else {
      for (int64_t column = 0; column < dim; ++column) sum[column] += gradient[column];
    }
  }
}

// The same, where keys share the gradients of their bags.
TFHYBRID_SIMD void AddBags(const KeyGradients& part, const uint32_t* numbers, int64_t dim,
                           float* sums, int64_t* known) {
  RowCursor<const float> cursor(part.gradients, part.layout, 0);
  const Bags& bags = *part.bags;
  for (int64_t bag = 0; bag < bags.size(); ++bag) {
    const float* gradient = cursor.Next();
    const int64_t last = bags.splits[bag + 1];
    if (bags.splits[bag] == last) continue;
    const float divisor = bags.Divisor(bag);
    for (int64_t i = bags.splits[bag]; i < last; ++i) {
      const float scale = bags.Scale(i, divisor);
      const int64_t number = numbers[i];
      float* sum = sums + number * dim;
      if (number == *known) {
        for (int64_t column = 0; column < dim; ++column) sum[column] = scale * gradient[column];
        ++*known;
      } else {
        for (int64_t column = 0; column < dim; ++column) sum[column] += scale * gradient[column];
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
  const uint32_t* numbers = numbers_.data();
  int64_t known = 0;
  for (const KeyGradients& part : parts) {
    (part.bags == nullptr ? AddRows : AddBags)(part, numbers, dim, sums, &known);
    numbers += part.keys.size();
  }
}

}  // namespace tfhybrid
