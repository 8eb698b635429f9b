#include "core/compute/gradient_sum.h"

#include "core/util/copy_floats.h"
#include "core/util/prefetch.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// Side by side with those of other features, the gradients of one lie in strides that no processor
// fetches on its own.
constexpr int64_t kRowsAhead = 16;

// The sums that a call is to write: those of keys [known, end) have not begun.
struct Sums {
  int64_t begin;
  int64_t end;
  int64_t dim;
  float* rows;
  int64_t known;

  bool Has(int64_t number) const { return number >= begin && number < end; }
};

// False at a number whose predecessor has not come yet.
TFHYBRID_SIMD bool AddRows(const NumberedGradients& part, Sums* sums) {
  if (part.numbers.empty()) return true;
  RowCursor<const float> cursor(part.gradients, part.layout, 0);
  RowCursor<const float> ahead(part.gradients, part.layout, kRowsAhead);
  const int64_t dim = sums->dim;
  for (const int64_t number : part.numbers) {
    const float* gradient = cursor.Next();
    PrefetchFloats(ahead.Next(), dim);
    if (!sums->Has(number)) continue;
    float* sum = sums->rows + number * dim;
    if (number < sums->known) {
      for (int64_t column = 0; column < dim; ++column) sum[column] += gradient[column];
    } else if (number == sums->known) {
      CopyFloats(gradient, dim, sum);
      ++sums->known;
    } else {
      return false;
    }
  }
  return true;
}

// The same, where keys share the gradients of their bags.
TFHYBRID_SIMD bool AddBags(const NumberedGradients& part, Sums* sums) {
  RowCursor<const float> cursor(part.gradients, part.layout, 0);
  const Bags& bags = *part.bags;
  const int64_t dim = sums->dim;
  for (int64_t bag = 0; bag < bags.size(); ++bag) {
    const float* gradient = cursor.Next();
    const int64_t last = bags.splits[bag + 1];
    if (bags.splits[bag] == last) continue;
    const float divisor = bags.Divisor(bag);
    for (int64_t i = bags.splits[bag]; i < last; ++i) {
      const int64_t number = part.numbers[i];
      if (!sums->Has(number)) continue;
      const float scale = bags.Scale(i, divisor);
      float* sum = sums->rows + number * dim;
      if (number < sums->known) {
        for (int64_t column = 0; column < dim; ++column) sum[column] += scale * gradient[column];
      } else if (number == sums->known) {
        for (int64_t column = 0; column < dim; ++column) sum[column] = scale * gradient[column];
        ++sums->known;
      } else {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool SumGradients(const std::vector<NumberedGradients>& parts, int64_t begin, int64_t end,
                  int64_t dim, float* sums) {
  Sums wanted = {begin, end, dim, sums, begin};
  for (const NumberedGradients& part : parts) {
    if (!(part.bags == nullptr ? AddRows : AddBags)(part, &wanted)) return false;
  }
  return wanted.known == end;
}

void GradientSum::Number(const std::vector<KeyGradients>& parts) {
  int64_t occurrences = 0;
  for (const KeyGradients& part : parts) occurrences += part.keys.size();
  unique_.Reset(occurrences);
  numbers_.resize(static_cast<size_t>(occurrences));
  uint32_t* numbers = numbers_.data();
  for (const KeyGradients& part : parts) {
    unique_.Number(part.keys, numbers);
    numbers += part.keys.size();
  }
}

void GradientSum::Sum(const std::vector<KeyGradients>& parts, int64_t dim, float* sums) const {
  std::vector<NumberedGradients> numbered;
  const uint32_t* numbers = numbers_.data();
  for (const KeyGradients& part : parts) {
    numbered.push_back({{numbers, part.keys.size()}, part.gradients, part.layout, part.bags});
    numbers += part.keys.size();
  }
  SumGradients(numbered, 0, unique_.size(), dim, sums);
}

}  // namespace tfhybrid
