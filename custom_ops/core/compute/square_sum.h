// SquareSum: a sum of squares whose bits do not depend on the order of additions. So hosts that
// merge the same gradients in different orders clip them by the same factor.
//
// Each square is rounded to float; floats of equal exponent are added exactly, as integers. Works
// for up to 2^39 squares.
#ifndef TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_
#define TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tfhybrid {

class SquareSum {
 public:
  // REQUIRES: not negative. A square that overflows a float makes the sum infinite.
  void Add(double square) {
    const auto rounded = static_cast<float>(square);
    uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    const uint32_t exponent = bits >> kFractionBits;
    const int64_t fraction = bits & ((1u << kFractionBits) - 1);
    sums_[exponent] += exponent == 0 ? fraction : fraction + (1 << kFractionBits);
  }

  void Add(const SquareSum& other) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  }

  double Total() const {
    double total = 0.0;
    for (size_t i = 0; i < sums_.size(); ++i) {
      // The least exponent stands for denormals, of the same unit as the next.
      const int unit = static_cast<int>(i == 0 ? 1 : i) - kBias - kFractionBits;
      total += std::ldexp(static_cast<double>(sums_[i]), unit);
    }
    return sums_.back() != 0 ? HUGE_VAL : total;
  }

 private:
  static constexpr int kFractionBits = 23;
  static constexpr int kBias = 127;

  std::array<int64_t, 256> sums_ = {};  // by exponent as it lies in a float; the last of infinities
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_
