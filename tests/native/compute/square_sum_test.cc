#include "core/compute/square_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

namespace tfhybrid::square_sum_test {
namespace {

// Of all sizes that a float can have.
std::vector<double> Squares(int count) {
  std::mt19937_64 random(1);
  std::vector<double> squares;
  for (int i = 0; i < count; ++i) {
    const int exponent = static_cast<int>(random() % 60) - 40;
    squares.push_back(std::ldexp(static_cast<double>(random() % (1 << 24)), exponent));
  }
  return squares;
}

TEST(SquareSumTest, BitsDoNotDependOnTheOrder) {
  std::vector<double> squares = Squares(10000);
  SquareSum sum;
  for (const double square : squares) sum.Add(square);
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(squares.begin(), squares.end(), random);
    // In parts, as threads add them up.
    std::vector<SquareSum> parts(1 + random() % 5);
    for (size_t i = 0; i < squares.size(); ++i) parts[i % parts.size()].Add(squares[i]);
    SquareSum total;
    for (const SquareSum& part : parts) total.Add(part);
    EXPECT_EQ(sum.Total(), total.Total());
  }
}

TEST(SquareSumTest, IsTheSumWithinRoundingToFloat) {
  const std::vector<double> squares = Squares(1000);
  SquareSum sum;
  double wanted = 0.0;
  for (const double square : squares) {
    sum.Add(square);
    wanted += square;
  }
  EXPECT_NEAR(wanted, sum.Total(), 1e-7 * wanted);
}

TEST(SquareSumTest, EndsOfTheRange) {
  SquareSum sum;
  EXPECT_EQ(0.0, sum.Total());
  sum.Add(0.0);
  EXPECT_EQ(0.0, sum.Total());
  sum.Add(double{FLT_TRUE_MIN});
  EXPECT_EQ(double{FLT_TRUE_MIN}, sum.Total());
  sum.Add(double{FLT_MAX});
  EXPECT_EQ(double{FLT_MAX}, sum.Total());
  sum.Add(double{FLT_MAX});
  EXPECT_EQ(2.0 * double{FLT_MAX}, sum.Total());
  SquareSum other;
  other.Add(1e300);
  sum.Add(other);
  EXPECT_EQ(HUGE_VAL, sum.Total());
}

}  // namespace
}  // namespace tfhybrid::square_sum_test
