// SquareSum: a sum of squares whose bits do not depend on the order of additions, so that hosts
// which merge the same gradients in other orders clip them by the same factor.
//
// Each square is rounded to float; floats of equal exponent add up as integers, exactly. Good for
// 2^39 of them.
#ifndef TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_
#define TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tfhybrid {

class SquareSum {
 public:
  // REQUIRES: not negative. What no float can hold makes the sum infinite.
  void Add(double square) {
    int exponent = 0;
    const float fraction = std::frexp(static_cast<float>(square), &exponent);
    if (!std::isfinite(fraction)) {
      overflow_ = true;
      return;
    }
    sums_[static_cast<size_t>(exponent - kLeastExponent)] +=
        static_cast<int64_t>(std::ldexp(fraction, kMantissaBits));
  }

  void Add(const SquareSum& other) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
    overflow_ = overflow_ || other.overflow_;
  }

  double Total() const {
    double total = 0.0;
    for (size_t i = 0; i < sums_.size(); ++i) {
      total += std::ldexp(static_cast<double>(sums_[i]),
                          static_cast<int>(i) + kLeastExponent - kMantissaBits);
    }
    return overflow_ ? std::numeric_limits<double>::infinity() : total;
  }

 private:
  static constexpr int kMantissaBits = 24;
  static constexpr int kLeastExponent = -149;  // frexp of the least denormal says -148

  std::array<int64_t, 280> sums_ = {};  // by exponent, up to 128
  bool overflow_ = false;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_SQUARE_SUM_H_
