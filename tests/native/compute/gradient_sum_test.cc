#include "core/compute/gradient_sum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace tfhybrid::gradient_sum_test {
namespace {

constexpr float kElsewhere = 1e30f;  // between the rows: nobody may add it

// Keys and gradients of one part, in a layout of its own.
struct Part {
  std::vector<int64_t> keys;
  std::vector<float> floats;
  RowLayout layout;

  KeyGradients gradients() const { return {keys, floats.data(), layout}; }
};

Part RandomPart(int64_t count, int64_t dim, int64_t distinct, std::mt19937_64* random) {
  std::uniform_real_distribution<float> gradient(-1.0f, 1.0f);
  Part part;
  const auto run = static_cast<int64_t>(1 + (*random)() % 4);
  part.layout = {dim, run, run * dim + static_cast<int64_t>((*random)() % 5)};
  part.floats.assign(static_cast<size_t>(part.layout.Offset(count) + dim), kElsewhere);
  for (int64_t i = 0; i < count; ++i) {
    const auto key = static_cast<int64_t>((*random)() % static_cast<uint64_t>(distinct));
    part.keys.push_back(key % 2 == 0 ? key : std::numeric_limits<int64_t>::min() + key);
    for (int64_t c = 0; c < dim; ++c) {
      part.floats[static_cast<size_t>(part.layout.Offset(i) + c)] = gradient(*random);
    }
  }
  return part;
}

// What GradientSum must give, by a map.
void ExpectSums(GradientSum* sum, const std::vector<Part>& parts, int64_t dim) {
  std::vector<int64_t> order;
  std::map<int64_t, std::vector<float>> wanted;
  std::vector<KeyGradients> gradients;
  for (const Part& part : parts) {
    gradients.push_back(part.gradients());
    for (size_t i = 0; i < part.keys.size(); ++i) {
      const float* row = part.floats.data() + part.layout.Offset(static_cast<int64_t>(i));
      const auto [at, first] = wanted.try_emplace(part.keys[i], std::vector<float>(row, row + dim));
      if (first) order.push_back(part.keys[i]);
      for (int64_t c = 0; !first && c < dim; ++c) at->second[static_cast<size_t>(c)] += row[c];
    }
  }
  sum->Number(gradients);
  ASSERT_EQ(order, std::vector<int64_t>(sum->keys().begin(), sum->keys().end()));
  std::vector<float> sums(order.size() * static_cast<size_t>(dim) + 1, kElsewhere);
  sum->Sum(gradients, dim, sums.data());
  EXPECT_EQ(kElsewhere, sums.back());
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(0, std::memcmp(wanted[order[i]].data(), sums.data() + i * static_cast<size_t>(dim),
                             static_cast<size_t>(dim) * sizeof(float)))
        << "key " << order[i];
  }
}

TEST(GradientSumTest, SumsAsAMapDoesForAnyPartsAndLayouts) {
  std::mt19937_64 random(3);
  GradientSum sum;
  for (int64_t dim = 1; dim <= 33; ++dim) {
    for (int64_t count = 1; count <= 7; ++count) {
      std::vector<Part> parts;
      for (int64_t part = 0; part < count; ++part) {
        parts.push_back(RandomPart(static_cast<int64_t>(random() % 60), dim, 25, &random));
      }
      ExpectSums(&sum, parts, dim);
    }
  }
}

TEST(GradientSumTest, LargeAfterSmallAfterLarge) {
  std::mt19937_64 random(4);
  GradientSum sum;
  for (const int64_t count : {20000, 3, 50000, 0, 1}) {
    ExpectSums(&sum, {RandomPart(count, 4, 9000, &random)}, 4);
  }
}

TEST(GradientSumTest, NoPartsGiveNoKeys) {
  GradientSum sum;
  ExpectSums(&sum, {}, 3);
  EXPECT_TRUE(sum.keys().empty());
}

// Threads that sum some of the keys each write what one of them writes alone.
TEST(GradientSumTest, RangesOfKeysAreSummedApart) {
  std::mt19937_64 random(6);
  const std::vector<Part> parts = {RandomPart(900, 5, 300, &random), RandomPart(0, 5, 1, &random),
                                   RandomPart(700, 5, 300, &random)};
  UniqueKeys unique;
  unique.Reset(1600);
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<NumberedGradients> numbered;
  for (const Part& part : parts) {
    numbers.emplace_back(part.keys.size());
    unique.Number(part.keys, numbers.back().data());
    numbered.push_back({{numbers.back().data(), static_cast<int64_t>(part.keys.size())},
                        part.floats.data(),
                        part.layout});
  }
  const auto floats = static_cast<size_t>(5 * unique.size());
  std::vector<float> alone(floats), apart(floats, kElsewhere);
  ASSERT_TRUE(SumGradients(numbered, 0, unique.size(), 5, alone.data()));
  const std::vector<int64_t> ends = {0, 1, 1, 40, 250, unique.size()};
  for (size_t i = 1; i < ends.size(); ++i) {
    EXPECT_TRUE(SumGradients(numbered, ends[i - 1], ends[i], 5, apart.data()));
    const auto begun = static_cast<size_t>(5 * ends[i]);
    if (begun < floats) {
      EXPECT_EQ(kElsewhere, apart[begun]);
    }
  }
  EXPECT_EQ(0, std::memcmp(alone.data(), apart.data(), floats * sizeof(float)));
}

TEST(GradientSumTest, NumbersOutOfOrderAreRefused) {
  const std::vector<float> gradients(4, 1.0f);
  const std::vector<int64_t> splits = {0, 1, 2, 3, 4};
  const Bags bags = {Combiner::kSum, splits};
  std::vector<float> sums(3);
  for (const Bags* const of_keys : {static_cast<const Bags*>(nullptr), &bags}) {
    const auto sum = [&](const std::vector<uint32_t>& numbers, int64_t end) {
      return SumGradients({{numbers, gradients.data(), RowLayout::Array(1), of_keys}}, 0, end, 1,
                          sums.data());
    };
    EXPECT_TRUE(sum({0, 0, 1, 2}, 3));
    EXPECT_FALSE(sum({0, 2, 1, 0}, 3));
    EXPECT_FALSE(sum({1, 0, 1, 2}, 3));
    EXPECT_FALSE(sum({0, 0, 1, 1}, 3));  // one is missing
  }
}

// A lone gradient comes out as it went in: no zero is added, which would make -0 a 0.
TEST(GradientSumTest, LoneGradientKeepsItsBits) {
  const std::vector<int64_t> keys = {5};
  const std::vector<float> gradients = {-0.0f, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<KeyGradients> parts = {{keys, gradients.data(), RowLayout::Array(2)}};
  GradientSum sum;
  sum.Number(parts);
  std::vector<float> sums(2);
  sum.Sum(parts, 2, sums.data());
  EXPECT_EQ(0, std::memcmp(gradients.data(), sums.data(), 2 * sizeof(float)));
}

}  // namespace
}  // namespace tfhybrid::gradient_sum_test
