#include "core/compute/row_update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compute/optimizer_configs.h"
#include "shm/status_asserts.h"

namespace tfhybrid::row_update_test {
namespace {

constexpr float kScale = 0.5f;
constexpr float kRate = 0.1f;

std::vector<float> Normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

RowUpdate UpdateWith(const OptimizerConfig& config) { return {PrepareStep(config, kRate, 3)}; }

class RowUpdateTest : public testing::TestWithParam<NamedOptimizer> {};

// Awkward lengths, at awkward offsets.
TEST_P(RowUpdateTest, WithNothingBesideItIsTheOptimizer) {
  const RowUpdate update = UpdateWith(GetParam().config);
  EXPECT_TRUE(update.IsPlain());
  for (int64_t dim = 1; dim <= 67; ++dim) {
    const std::vector<float> sum = Normal(dim + 1, 1);
    std::vector<float> row = Normal(dim + 1, 2), state(static_cast<size_t>(3 * dim) + 1, 0.25f);
    std::vector<float> wanted = row, wanted_state = state, scratch(static_cast<size_t>(dim));
    ApplyRow(update.optimizer, dim, sum.data() + 1, kScale, wanted.data() + 1,
             wanted_state.data() + 1);
    UpdateRow(update, dim, sum.data() + 1, kScale, row.data() + 1, state.data() + 1,
              scratch.data());
    EXPECT_EQ(wanted, row) << dim;
    EXPECT_EQ(wanted_state, state) << dim;
  }
}

TEST_P(RowUpdateTest, EqualsTheOptimizerOnTheGradientWithPenaltiesClipped) {
  OptimizerConfig config = GetParam().config;
  config.penalty_l1 = 0.25;
  config.penalty_l2 = 0.5;
  RowUpdate update = UpdateWith(config);
  update.clip_value = 0.75f;
  update.clip_factor = 0.5f;
  for (int64_t dim = 1; dim <= 67; ++dim) {
    const std::vector<float> sum = Normal(dim, 3);
    std::vector<float> row = Normal(dim, 4), state(static_cast<size_t>(3 * dim), 0.25f);
    row[0] = 0.0f;  // whose sign is none
    std::vector<float> wanted = row, wanted_state = state, gradient, scratch(sum.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      const float sign = static_cast<float>((row[i] > 0) - (row[i] < 0));
      const float whole = sum[i] * kScale + 0.25f * sign + 2.0f * 0.5f * row[i];
      gradient.push_back(std::fmax(-0.75f, std::fmin(0.75f, whole)));
    }
    ApplyRow(update.optimizer, dim, gradient.data(), 0.5f, wanted.data(), wanted_state.data());
    UpdateRow(update, dim, sum.data(), kScale, row.data(), state.data(), scratch.data());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(wanted[i], row[i], 1e-6) << dim;
    for (size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(wanted_state[i], state[i], 1e-6) << dim;
  }
}

TEST_P(RowUpdateTest, DecaysWhatItIsWorthAndThenRunsTheOptimizer) {
  RowUpdate update = UpdateWith(GetParam().config);
  update.decay_before = 0.5f;
  update.decay_after = 0.375f;
  for (int64_t dim = 1; dim <= 67; ++dim) {
    const std::vector<float> sum = Normal(dim, 5);
    std::vector<float> row = Normal(dim, 6), state(static_cast<size_t>(3 * dim), 0.25f);
    std::vector<float> wanted = row, wanted_state = state, scratch(sum.size());
    for (float& value : wanted) value *= 0.375f;
    ApplyRow(update.optimizer, dim, sum.data(), kScale, wanted.data(), wanted_state.data());
    UpdateRow(update, dim, sum.data(), kScale, row.data(), state.data(), scratch.data());
    ScaleRow(0.375f, dim, row.data());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(wanted[i], row[i], 1e-6) << dim;
    EXPECT_EQ(wanted_state, state) << dim;
  }
}

INSTANTIATE_TEST_SUITE_P(, RowUpdateTest, testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

TEST(RowGradientTest, PenaltiesAreOfWhatTheEmbeddingIsWorth) {
  OptimizerConfig config;
  config.kind = OptimizerKind::kSgd;
  config.penalty_l2 = 1.0;
  RowUpdate update = UpdateWith(config);
  update.decay_before = 0.25f;
  const float sum = 3.0f, embedding = 8.0f;
  float gradient = 0.0f;
  RowGradient(update, 1, &sum, 1.0f, &embedding, &gradient);
  EXPECT_EQ(3.0f + 2.0f * 2.0f, gradient);
}

TEST(SquaresTest, AddUpWithinRounding) {
  for (const int64_t count : {0, 1, 7, 8, 9, 1000}) {
    const std::vector<float> values = Normal(count, 7);
    double wanted = 0.0;
    for (const double value : values) wanted += value * value;
    EXPECT_NEAR(wanted, Squares(values.data(), count), 1e-12 * wanted) << count;
  }
}

TEST(ClipFactorTest, OnlyShrinks) {
  EXPECT_EQ(1.0f, ClipFactor(0.0, 2.0f));
  EXPECT_EQ(1.0f, ClipFactor(4.0, 2.0f));
  EXPECT_EQ(0.5f, ClipFactor(16.0, 2.0f));
  EXPECT_EQ(0.0f, ClipFactor(INFINITY, 2.0f));
  EXPECT_EQ(1.0f, ClipFactor(NAN, 2.0f));  // nothing is applied then
}

TEST(ParseClippingTest, KnowsFour) {
  EXPECT_EQ(Clipping::kNone, ParseClipping("none").value());
  EXPECT_EQ(Clipping::kValue, ParseClipping("value").value());
  EXPECT_EQ(Clipping::kNorm, ParseClipping("norm").value());
  EXPECT_EQ(Clipping::kGlobalNorm, ParseClipping("global_norm").value());
  ExpectError(ParseClipping("Norm").status(), StatusCode::kInvalidArgument, {"'Norm'"});
}

}  // namespace
}  // namespace tfhybrid::row_update_test
