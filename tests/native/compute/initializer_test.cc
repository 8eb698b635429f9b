#include "core/compute/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/util/hash.h"

namespace tfhybrid::initializer_test {
namespace {

constexpr uint64_t kSeed = 42;
constexpr int64_t kMinKey = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxKey = std::numeric_limits<int64_t>::max();
// Found by inverting Mix64: at seed 42 the first column draws the smallest and the largest u.
constexpr int64_t kKeyOfSmallestSample = -661832922496011765;
constexpr int64_t kKeyOfLargestSample = 7757116439765330151;

const Initializer kUnitUniform = {InitializerKind::kUniform, -1.0, 1.0};
const Initializer kUnitNormal = {InitializerKind::kNormal, 0.0, 1.0};
const Initializer kUnitTruncated = {InitializerKind::kTruncatedNormal, 0.0, 1.0};

std::vector<float> Row(const Initializer& initializer, int64_t key, int64_t dim,
                       uint64_t seed = kSeed) {
  std::vector<float> row(dim, -99.0f);
  InitializeRow(initializer, seed, key, row);
  return row;
}

// The header's formulas, one value at a time.
float Reference(const Initializer& initializer, int64_t key, int64_t column) {
  const uint64_t h = Mix64(Mix64(static_cast<uint64_t>(key) + kGoldenGamma) ^ kSeed);
  const uint64_t bits = Mix64(h + static_cast<uint64_t>(column + 1) * kGoldenGamma);
  const double u = std::ldexp(static_cast<double>(bits >> 32) + 0.5, -32);
  const double a = initializer.a;
  const double b = initializer.b;
  switch (initializer.kind) {
    case InitializerKind::kZeros:
      return 0.0f;
    case InitializerKind::kConstant:
      return static_cast<float>(a);
    case InitializerKind::kUniform:
      return static_cast<float>(a + (b - a) * u);
    case InitializerKind::kNormal:
      return static_cast<float>(a + b * NormalQuantile(u));
    case InitializerKind::kTruncatedNormal: {
      const double below = 0.5 * std::erfc(std::sqrt(2.0));
      const double q = NormalQuantile(below + std::erf(std::sqrt(2.0)) * u);
      return static_cast<float>(a + b * std::clamp(q, -2.0, 2.0));
    }
  }
  return std::nanf("");
}

// Inverts the distribution function by bisection.
double ReferenceQuantile(double u) {
  double low = -10.0;
  double high = 10.0;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < u ? low : high) = middle;
  }
  return low;
}

struct Moments {
  double mean;
  double stddev;
  float min;
  float max;
};

Moments MomentsOfAMillion(const Initializer& initializer) {
  constexpr int kKeys = 62500;
  constexpr int kDim = 16;
  double sum = 0.0;
  double squares = 0.0;
  float min = std::numeric_limits<float>::max();
  float max = -min;
  std::vector<float> row(kDim);
  for (int64_t key = 0; key < kKeys; ++key) {
    InitializeRow(initializer, kSeed, key, row);
    for (const float value : row) {
      sum += value;
      squares += static_cast<double>(value) * value;
      min = std::min(min, value);
      max = std::max(max, value);
    }
  }
  const double mean = sum / (kKeys * kDim);
  return {mean, std::sqrt(squares / (kKeys * kDim) - mean * mean), min, max};
}

// Exported models compute these values with other code: they can never change.
TEST(InitializeRowTest, GoldenUniformValues) {
  using Floats = std::vector<float>;
  EXPECT_EQ(Row(kUnitUniform, 0, 3), (Floats{0x1.29a162p-1f, -0x1.ca84e8p-1f, -0x1.d15ceep-2f}));
  EXPECT_EQ(Row(kUnitUniform, -1, 3), (Floats{-0x1.f71206p-1f, -0x1.8142d8p-2f, 0x1.f8e7e4p-1f}));
  EXPECT_EQ(Row(kUnitUniform, kMinKey, 3),
            (Floats{-0x1.b43a96p-4f, 0x1.b958dcp-1f, -0x1.8ae184p-1f}));
  EXPECT_EQ(Row(kUnitUniform, kMaxKey, 3),
            (Floats{-0x1.90b848p-4f, -0x1.0d61acp-1f, -0x1.c3306ap-2f}));
}

TEST(InitializeRowTest, GoldenNormalValues) {
  using Floats = std::vector<float>;
  EXPECT_EQ(Row(kUnitNormal, 0, 3), (Floats{0x1.9e0d42p-1f, -0x1.9fa636p+0f, -0x1.357a96p-1f}));
  EXPECT_EQ(Row(kUnitNormal, -1, 3), (Floats{-0x1.304ae2p+1f, -0x1.f649f6p-2f, 0x1.3b0168p+1f}));
  EXPECT_EQ(Row(kUnitNormal, kMinKey, 3),
            (Floats{-0x1.122ec8p-3f, 0x1.7bb9bep+0f, -0x1.341e76p+0f}));
  EXPECT_EQ(Row(kUnitNormal, kMaxKey, 3),
            (Floats{-0x1.f77e32p-4f, -0x1.6eb28ep-1f, -0x1.2ae1d8p-1f}));
}

TEST(InitializeRowTest, GoldenTruncatedNormalValues) {
  using Floats = std::vector<float>;
  EXPECT_EQ(Row(kUnitTruncated, 0, 3), (Floats{0x1.86eef2p-1f, -0x1.74e98ep+0f, -0x1.25b224p-1f}));
  EXPECT_EQ(Row(kUnitTruncated, -1, 3), (Floats{-0x1.dd8098p+0f, -0x1.dda764p-2f, 0x1.e3e6e6p+0f}));
  EXPECT_EQ(Row(kUnitTruncated, kMinKey, 3),
            (Floats{-0x1.05a33ap-3f, 0x1.5970dep+0f, -0x1.1e0b52p+0f}));
  EXPECT_EQ(Row(kUnitTruncated, kMaxKey, 3),
            (Floats{-0x1.e079dap-4f, -0x1.5b1c3ep-1f, -0x1.1bc1b0p-1f}));
}

TEST(InitializeRowTest, ConstantsFillTheRow) {
  EXPECT_EQ(Row({InitializerKind::kZeros, 3.0, 4.0}, 5, 7), std::vector<float>(7, 0.0f));
  EXPECT_EQ(Row({InitializerKind::kConstant, 0.25, 4.0}, 5, 7), std::vector<float>(7, 0.25f));
}

TEST(InitializeRowTest, VectorLoopsEqualTheScalarFormulaBitForBit) {
  constexpr int64_t kMaxDim = 67;
  constexpr float kGuard = -99.0f;
  const std::vector<Initializer> initializers = {{InitializerKind::kUniform, -0.05, 0.05},
                                                 {InitializerKind::kNormal, 0.1, 0.3},
                                                 {InitializerKind::kTruncatedNormal, 0.1, 0.3}};
  std::vector<float> memory(kMaxDim + 5);
  for (const Initializer& initializer : initializers) {
    for (int64_t dim = 0; dim <= kMaxDim; ++dim) {
      const int64_t offset = dim % 4;
      std::fill(memory.begin(), memory.end(), kGuard);
      InitializeRow(initializer, kSeed, dim - 30, Span<float>(memory.data() + offset, dim));
      for (int64_t c = 0; c < dim; ++c) {
        ASSERT_EQ(memory[offset + c], Reference(initializer, dim - 30, c)) << dim << ", " << c;
      }
      ASSERT_EQ(memory[offset + dim], kGuard);
    }
  }
}

TEST(InitializeRowTest, ExtremeSamplesStayInsideTheBounds) {
  EXPECT_EQ(Row(kUnitUniform, kKeyOfSmallestSample, 1)[0], -1.0f);
  EXPECT_EQ(Row(kUnitUniform, kKeyOfLargestSample, 1)[0], 1.0f);
  EXPECT_EQ(Row(kUnitTruncated, kKeyOfSmallestSample, 1)[0], -2.0f);
  EXPECT_EQ(Row(kUnitTruncated, kKeyOfLargestSample, 1)[0], 2.0f);
  EXPECT_NEAR(Row(kUnitNormal, kKeyOfSmallestSample, 1)[0], -6.3379574, 1e-6);
  EXPECT_NEAR(Row(kUnitNormal, kKeyOfLargestSample, 1)[0], 6.3379574, 1e-6);
}

TEST(InitializeRowTest, AWiderRowStartsWithTheNarrowOne) {
  const std::vector<float> wide = Row(kUnitNormal, 9, 33);
  EXPECT_EQ(Row(kUnitNormal, 9, 5), std::vector<float>(wide.begin(), wide.begin() + 5));
}

TEST(InitializeRowTest, KeyAndSeedBothMatter) {
  EXPECT_NE(Row(kUnitUniform, 1, 8), Row(kUnitUniform, 2, 8));
  EXPECT_NE(Row(kUnitUniform, 1, 8, 1), Row(kUnitUniform, 1, 8, 2));
}

// A million draws: the bounds are about five standard errors.
TEST(InitializeRowTest, UniformMoments) {
  const Moments moments = MomentsOfAMillion({InitializerKind::kUniform, -0.5, 1.5});
  EXPECT_NEAR(moments.mean, 0.5, 0.003);
  EXPECT_NEAR(moments.stddev, 2.0 / std::sqrt(12.0), 0.002);
  EXPECT_GE(moments.min, -0.5f);
  EXPECT_LE(moments.max, 1.5f);
}

TEST(InitializeRowTest, NormalMoments) {
  const Moments moments = MomentsOfAMillion({InitializerKind::kNormal, 1.0, 2.0});
  EXPECT_NEAR(moments.mean, 1.0, 0.01);
  EXPECT_NEAR(moments.stddev, 2.0, 0.0075);
  EXPECT_LT(moments.min, 1.0f - 4 * 2.0f);
  EXPECT_GT(moments.max, 1.0f + 4 * 2.0f);
}

TEST(InitializeRowTest, TruncatedNormalMoments) {
  const Moments moments = MomentsOfAMillion({InitializerKind::kTruncatedNormal, 1.0, 2.0});
  EXPECT_NEAR(moments.mean, 1.0, 0.009);
  EXPECT_NEAR(moments.stddev, 2.0 * 0.8796256610342398, 0.006);
  EXPECT_GE(moments.min, 1.0f - 2 * 2.0f);
  EXPECT_LE(moments.max, 1.0f + 2 * 2.0f);
}

TEST(NormalQuantileTest, IsWithinAMillionthOfTheTruth) {
  for (int i = 1; i < 2000; ++i) {
    const double u = i / 2000.0;
    EXPECT_NEAR(NormalQuantile(u), ReferenceQuantile(u), 1e-6) << u;
  }
  for (int exponent = 2; exponent <= 33; ++exponent) {
    const double u = std::ldexp(1.0, -exponent);
    EXPECT_NEAR(NormalQuantile(u), ReferenceQuantile(u), 1e-6) << u;
    EXPECT_EQ(NormalQuantile(1.0 - u), -NormalQuantile(u)) << u;
  }
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
}

TEST(NormalQuantileTest, IsContinuousWhereItsBranchesMeet) {
  for (const double edge : {0.075, 0.925}) {
    EXPECT_NEAR(NormalQuantile(edge - 1e-12), NormalQuantile(edge + 1e-12), 1e-6);
  }
}

TEST(TableSeedTest, GoldenValues) {
  EXPECT_EQ(TableSeed(0, "item", 4), 0x82a90f3f6a055295u);
  EXPECT_EQ(TableSeed(7, "", 0), 0x25b3820df888e87bu);
}

TEST(TableSeedTest, NameAndJobBothMatter) {
  EXPECT_NE(TableSeed(0, "item", 4), TableSeed(0, "user", 4));
  EXPECT_NE(TableSeed(0, "item", 4), TableSeed(1, "item", 4));
}

TEST(ValidateInitializerTest, AcceptsTheFiveKinds) {
  for (uint32_t kind = 0; kind <= 4; ++kind) {
    EXPECT_TRUE(ValidateInitializer({static_cast<InitializerKind>(kind), 0.0, 0.0}).ok());
  }
}

TEST(ValidateInitializerTest, RefusesWhatCanNeverWork) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Initializer> refused = {
      {static_cast<InitializerKind>(5), 0.0, 0.0},  {InitializerKind::kConstant, std::nan(""), 0.0},
      {InitializerKind::kConstant, 1e39, 0.0},      {InitializerKind::kUniform, -inf, 0.0},
      {InitializerKind::kUniform, 0.5, 0.25},       {InitializerKind::kNormal, 0.0, -1.0},
      {InitializerKind::kTruncatedNormal, 0.0, inf}};
  for (const Initializer& initializer : refused) {
    const Status status = ValidateInitializer(initializer);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("Received: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tfhybrid::initializer_test
