#include "core/compute/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tfhybrid {
namespace {

constexpr float kLearningRate = 0.05f;
constexpr float kScale = 1.0f / 3.0f;
constexpr int kSteps = 20;
constexpr float kGuard = -99.0f;

OptimizerConfig Config(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

std::vector<float> Random(int64_t count, float stddev, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, stddev);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// One weight and its state, updated as the papers and Keras define it.
template <typename Real>
struct Weight {
  Real value;
  Real first = 0;   // Adagrad: accumulator; Adam: momentum
  Real second = 0;  // Adam: velocity
};

// The textbook update. In double it is the truth; in float, with Adam's `rate` already corrected,
// the operations that Keras does, one value at a time.
template <typename Real>
void Update(const OptimizerConfig& config, Real rate, Real g, Weight<Real>* w) {
  const Real epsilon = static_cast<Real>(config.epsilon);
  switch (config.kind) {
    case OptimizerKind::kNone:
      break;
    case OptimizerKind::kSgd:
      w->value -= g * rate;
      break;
    case OptimizerKind::kAdagrad:
      w->first += g * g;
      w->value -= rate * g / std::sqrt(w->first + epsilon);
      break;
    case OptimizerKind::kAdam:
      w->first += (g - w->first) * static_cast<Real>(1.0 - config.beta_1);
      w->second += (g * g - w->second) * static_cast<Real>(1.0 - config.beta_2);
      w->value -= w->first * rate / (std::sqrt(w->second) + epsilon);
      break;
  }
}

double TrueRate(const OptimizerConfig& config, int step) {
  if (config.kind != OptimizerKind::kAdam) return kLearningRate;
  return kLearningRate * std::sqrt(1.0 - std::pow(config.beta_2, step)) /
         (1.0 - std::pow(config.beta_1, step));
}

template <typename Real>
std::vector<Weight<Real>> Weights(const OptimizerConfig& config, const std::vector<float>& values) {
  std::vector<Weight<Real>> weights;
  const bool adagrad = config.kind == OptimizerKind::kAdagrad;
  for (const float value : values) {
    weights.push_back({value, adagrad ? Real{config.initial_accumulator_value} : Real{0}});
  }
  return weights;
}

// One row in memory that starts `offset` floats after an aligned address, with guards behind it.
class GuardedRow {
 public:
  GuardedRow(const OptimizerConfig& config, int64_t dim, int64_t offset)
      : config_(config),
        dim_(dim),
        offset_(offset),
        row_(offset + dim + 1, kGuard),
        state_(offset + StateSlots(config.kind) * dim + 1, kGuard),
        start_(Random(dim, 0.05f, 1)) {
    std::copy(start_.begin(), start_.end(), embedding());
    InitializeState(config_, dim_, state());
  }

  const std::vector<float>& start() const { return start_; }
  float* embedding() { return row_.data() + offset_; }
  float* state() { return state_.data() + offset_; }
  bool GuardsIntact() const { return row_.back() == kGuard && state_.back() == kGuard; }

  // Applies all updates, with a `check(prepared, step, gradient)` after each.
  template <typename Check>
  void Train(Check check) {
    for (int step = 1; step <= kSteps; ++step) {
      const std::vector<float> memory = Random(offset_ + dim_, 1.0f, 100 + step);
      const float* gradient = memory.data() + offset_;
      const OptimizerStep prepared = PrepareStep(config_, kLearningRate, step);
      ApplyRow(prepared, dim_, gradient, kScale, embedding(), state());
      check(prepared, step, gradient);
    }
  }

 private:
  const OptimizerConfig config_;
  const int64_t dim_;
  const int64_t offset_;
  std::vector<float> row_;
  std::vector<float> state_;
  const std::vector<float> start_;
};

class ApplyRowTest : public testing::TestWithParam<OptimizerKind> {
 protected:
  // Calls `test(row, dim)` for lengths around the vector widths and misaligned pointers.
  template <typename Test>
  void ForEachRow(Test test) {
    for (const int64_t dim : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64}) {
      for (const int64_t offset : {0, 1, 3}) {
        SCOPED_TRACE(testing::Message() << "dim " << dim << ", offset " << offset);
        GuardedRow row(config_, dim, offset);
        test(&row, dim);
        EXPECT_TRUE(row.GuardsIntact());
      }
    }
  }

  const OptimizerConfig config_ = Config(GetParam());
};

TEST_P(ApplyRowTest, StaysWithinAMillionthOfTheDoubleReference) {
  ForEachRow([this](GuardedRow* row, int64_t dim) {
    std::vector<Weight<double>> reference = Weights<double>(config_, row->start());
    double largest = 0.0;
    row->Train([&](const OptimizerStep&, int step, const float* gradient) {
      for (int64_t i = 0; i < dim; ++i) {
        const double g = double{gradient[i]} * kScale;
        Update<double>(config_, TrueRate(config_, step), g, &reference[i]);
        largest = std::max(largest, std::fabs(reference[i].value));
      }
    });
    for (int64_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(row->embedding()[i], reference[i].value, 1e-6 * largest) << i;
    }
  });
}

TEST_P(ApplyRowTest, EqualsTheScalarOperationsBitForBit) {
  ForEachRow([this](GuardedRow* row, int64_t dim) {
    std::vector<Weight<float>> reference = Weights<float>(config_, row->start());
    row->Train([&](const OptimizerStep& prepared, int, const float* gradient) {
      for (int64_t i = 0; i < dim; ++i) {
        Update<float>(config_, prepared.learning_rate, gradient[i] * kScale, &reference[i]);
        ASSERT_EQ(row->embedding()[i], reference[i].value) << i;
        const float expected[] = {reference[i].first, reference[i].second};
        for (int slot = 0; slot < StateSlots(config_.kind); ++slot) {
          ASSERT_EQ(row->state()[slot * dim + i], expected[slot]) << i;
        }
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(AllKinds, ApplyRowTest,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kAdagrad,
                                         OptimizerKind::kAdam));

TEST(ApplyOneRowTest, NoneLeavesTheRow) {
  float embedding[] = {1.0f, 2.0f};
  const float gradient[] = {3.0f, 4.0f};
  ApplyRow(PrepareStep(Config(OptimizerKind::kNone), 1.0f, 1), 2, gradient, 1.0f, embedding,
           nullptr);
  EXPECT_EQ(embedding[0], 1.0f);
  EXPECT_EQ(embedding[1], 2.0f);
}

TEST(ApplyOneRowTest, FirstAdamStepIsTheLearningRateWithTheGradientsSign) {
  const OptimizerConfig config = Config(OptimizerKind::kAdam);
  float embedding[] = {0.0f, 0.0f};
  float state[4] = {};
  const float gradient[] = {2.0f, -300.0f};
  ApplyRow(PrepareStep(config, 0.01f, 1), 2, gradient, 1.0f, embedding, state);
  EXPECT_NEAR(embedding[0], -0.01f, 1e-7);
  EXPECT_NEAR(embedding[1], 0.01f, 1e-7);
}

TEST(InitializeStateTest, FillsEverySlot) {
  float state[5] = {kGuard, kGuard, kGuard, kGuard, kGuard};
  InitializeState(Config(OptimizerKind::kSgd), 2, state);
  EXPECT_EQ(state[0], kGuard);
  InitializeState(Config(OptimizerKind::kAdagrad), 2, state);
  EXPECT_EQ(state[0], 0.1f);
  EXPECT_EQ(state[1], 0.1f);
  EXPECT_EQ(state[2], kGuard);
  InitializeState(Config(OptimizerKind::kAdam), 2, state);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(state[i], 0.0f);
  EXPECT_EQ(state[4], kGuard);
}

TEST(PrepareStepTest, OnlyAdamCorrectsTheLearningRate) {
  EXPECT_EQ(PrepareStep(Config(OptimizerKind::kSgd), 0.5f, 3).learning_rate, 0.5f);
  EXPECT_EQ(PrepareStep(Config(OptimizerKind::kAdagrad), 0.5f, 3).learning_rate, 0.5f);
  const OptimizerConfig adam = Config(OptimizerKind::kAdam);
  for (const int step : {1, 2, 3, 10, 1000, 1000000}) {
    const float expected = static_cast<float>(TrueRate(adam, step));
    EXPECT_FLOAT_EQ(PrepareStep(adam, kLearningRate, step).learning_rate, expected) << step;
  }
  EXPECT_EQ(PrepareStep(adam, kLearningRate, int64_t{1} << 40).learning_rate, kLearningRate);
}

TEST(ValidateOptimizerTest, AcceptsTheDefaultsOfEveryKind) {
  for (uint32_t kind = 0; kind <= 3; ++kind) {
    EXPECT_TRUE(ValidateOptimizer(Config(static_cast<OptimizerKind>(kind))).ok());
  }
}

TEST(ValidateOptimizerTest, RefusesWhatCanNeverWork) {
  std::vector<OptimizerConfig> refused(8, Config(OptimizerKind::kAdam));
  refused[0].kind = static_cast<OptimizerKind>(4);
  refused[1].beta_1 = 1.0;
  refused[2].beta_1 = -0.1;
  refused[3].beta_2 = std::nan("");
  refused[4].epsilon = -1e-7f;
  refused[5].epsilon = std::numeric_limits<float>::infinity();
  refused[6].initial_accumulator_value = -0.1f;
  refused[7].initial_accumulator_value = std::nanf("");
  for (const OptimizerConfig& config : refused) {
    const Status status = ValidateOptimizer(config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("Received: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tfhybrid
