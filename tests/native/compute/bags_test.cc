#include "core/compute/bags.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/compute/gradient_sum.h"

namespace tfhybrid::bags_test {
namespace {

constexpr float kElsewhere = 1e30f;  // between the embeddings: nobody may write there

struct Batch {
  std::vector<int64_t> splits = {0};
  std::vector<int64_t> keys;
  std::vector<float> weights;
  std::vector<float> rows;  // of each key

  Bags bags(Combiner combiner, bool weighted) const {
    return {combiner, splits, weighted ? weights.data() : nullptr};
  }
};

Batch RandomBatch(int64_t bags, int64_t dim, std::mt19937_64* random) {
  std::uniform_real_distribution<float> number(-1.0f, 2.0f);
  Batch batch;
  for (int64_t bag = 0; bag < bags; ++bag) {
    const int64_t length = static_cast<int64_t>((*random)() % 4);
    for (int64_t i = 0; i < length; ++i) {
      batch.keys.push_back(static_cast<int64_t>((*random)() % 7));
      batch.weights.push_back((*random)() % 5 == 0 ? 0.0f : number(*random));
      for (int64_t c = 0; c < dim; ++c) batch.rows.push_back(number(*random));
    }
    batch.splits.push_back(static_cast<int64_t>(batch.keys.size()));
  }
  return batch;
}

double DivisorOf(const Batch& batch, Combiner combiner, bool weighted, size_t bag) {
  double divisor = 0;
  for (auto i = static_cast<size_t>(batch.splits[bag]);
       i < static_cast<size_t>(batch.splits[bag + 1]); ++i) {
    const double weight = weighted ? batch.weights[i] : 1.0;
    divisor += combiner == Combiner::kSqrtn ? weight * weight : weight;
  }
  if (combiner == Combiner::kSum) return 1;
  return combiner == Combiner::kMean ? divisor : std::sqrt(divisor);
}

struct Case {
  Combiner combiner;
  bool weighted;
};

class BagsTest : public testing::TestWithParam<Case> {};

TEST_P(BagsTest, EmbeddingsAreTheDefinition) {
  std::mt19937_64 random(1);
  for (const int64_t dim : {1, 3, 8, 17, 33}) {
    const Batch batch = RandomBatch(40, dim, &random);
    const Bags bags = batch.bags(GetParam().combiner, GetParam().weighted);
    for (const auto& [first, last] : std::vector<std::pair<int64_t, int64_t>>{{0, 40}, {7, 22}}) {
      const RowLayout layout = {dim, 1, dim + 2};
      std::vector<float> out(static_cast<size_t>(layout.Offset(40) + 2), kElsewhere);
      BagCombiner combiner(bags, first, last, dim, RowCursor<float>(out.data(), layout, first));
      for (int64_t i = batch.splits[static_cast<size_t>(first)];
           i < batch.splits[static_cast<size_t>(last)]; ++i) {
        combiner.Add(batch.rows.data() + i * dim);
      }
      for (int64_t bag = 0; bag < 40; ++bag) {
        const auto b = static_cast<size_t>(bag);
        const double divisor = DivisorOf(batch, GetParam().combiner, GetParam().weighted, b);
        for (int64_t c = 0; c < dim + 2; ++c) {
          const float found = out[static_cast<size_t>(layout.Offset(bag) + c)];
          if (bag < first || bag >= last || c >= dim) {
            EXPECT_EQ(kElsewhere, found);
            continue;
          }
          double wanted = 0;
          for (int64_t i = batch.splits[b]; i < batch.splits[b + 1]; ++i) {
            const double weight = GetParam().weighted ? batch.weights[static_cast<size_t>(i)] : 1.0;
            wanted += weight * batch.rows[static_cast<size_t>(i * dim + c)];
          }
          wanted = divisor == 0 ? 0 : wanted / divisor;
          EXPECT_NEAR(wanted, found, 1e-5 * std::max(1.0, std::abs(wanted)));
        }
      }
    }
  }
}

TEST_P(BagsTest, GradientsOfKeysAreSharesOfTheirBags) {
  std::mt19937_64 random(2);
  for (const int64_t dim : {1, 8, 17}) {
    const Batch batch = RandomBatch(60, dim, &random);
    const Bags bags = batch.bags(GetParam().combiner, GetParam().weighted);
    std::vector<float> gradients(static_cast<size_t>(60 * dim));
    std::normal_distribution<float> number;
    for (float& gradient : gradients) gradient = number(random);
    KeyGradients part = {batch.keys, gradients.data(), RowLayout::Array(dim)};
    part.bags = &bags;
    GradientSum sum;
    sum.Number({part});
    std::vector<float> sums(static_cast<size_t>(sum.keys().size() * dim));
    sum.Sum({part}, dim, sums.data());
    for (int64_t n = 0; n < sum.keys().size(); ++n) {
      for (int64_t c = 0; c < dim; ++c) {
        double wanted = 0;
        for (size_t bag = 0; bag < 60; ++bag) {
          const double divisor = DivisorOf(batch, GetParam().combiner, GetParam().weighted, bag);
          for (auto i = static_cast<size_t>(batch.splits[bag]);
               i < static_cast<size_t>(batch.splits[bag + 1]); ++i) {
            if (batch.keys[i] != sum.keys()[n] || divisor == 0) continue;
            const double weight = GetParam().weighted ? batch.weights[i] : 1.0;
            wanted += weight / divisor *
                      gradients[bag * static_cast<size_t>(dim + 0) + static_cast<size_t>(c)];
          }
        }
        const float found = sums[static_cast<size_t>(n * dim + c)];
        EXPECT_NEAR(wanted, found, 1e-4 * std::max(1.0, std::abs(wanted)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, BagsTest,
                         testing::Values(Case{Combiner::kSum, false}, Case{Combiner::kSum, true},
                                         Case{Combiner::kMean, false}, Case{Combiner::kMean, true},
                                         Case{Combiner::kSqrtn, false},
                                         Case{Combiner::kSqrtn, true}));

TEST(CheckBagsTest, SplitsAreDistrusted) {
  const auto check = [](const std::vector<int64_t>& splits, int64_t keys) {
    return CheckBags({Combiner::kSum, splits, nullptr}, keys).ok();
  };
  EXPECT_TRUE(check({0}, 0));
  EXPECT_TRUE(check({0, 0, 3, 3}, 3));
  EXPECT_FALSE(check({}, 0));
  EXPECT_FALSE(check({1, 3}, 3));
  EXPECT_FALSE(check({0, 4}, 3));
  EXPECT_FALSE(check({0, 2}, 3));
  EXPECT_FALSE(check({0, 3, 2, 3}, 3));
  EXPECT_FALSE(check({0, -1, 3}, 3));
}

TEST(ParseCombinerTest, NamesAreThoseOfTensorFlow) {
  EXPECT_EQ(Combiner::kMean, ParseCombiner("mean").value());
  EXPECT_EQ(Combiner::kNone, ParseCombiner("").value());
  EXPECT_FALSE(ParseCombiner("max").ok());
}

}  // namespace
}  // namespace tfhybrid::bags_test
