#include "core/compute/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "compute/optimizer_configs.h"

namespace tfhybrid::optimizer_test {
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

// A row and its state, updated as the papers and Keras define it.
template <typename Real>
struct Row {
  std::vector<Real> values;
  std::vector<std::vector<Real>> slots;
};

// The textbook update. In double it is the truth; in float, with Adam's `rate` already corrected,
// the operations that Keras does, one value at a time.
template <typename Real>
void UpdateValue(const OptimizerConfig& c, Real rate, Real g, size_t i, Row<Real>* row) {
  const auto slot = [&](size_t number) -> Real& { return row->slots[number][i]; };
  const auto number = [](double value) { return static_cast<Real>(value); };
  const Real epsilon = static_cast<Real>(c.epsilon);
  Real& value = row->values[i];
  switch (c.kind) {
    case OptimizerKind::kNone:
    case OptimizerKind::kRowAdagrad:
      break;
    case OptimizerKind::kSgd:
      if (c.momentum == 0.0) {
        value -= g * rate;
        break;
      }
      slot(0) = slot(0) * number(c.momentum) - g * rate;
      value += c.flags == kNesterov ? slot(0) * number(c.momentum) - g * rate : slot(0);
      break;
    case OptimizerKind::kAdagrad:
      slot(0) += g * g;
      value -= rate * g / std::sqrt(slot(0) + epsilon);
      break;
    case OptimizerKind::kAdam: {
      slot(0) += (g - slot(0)) * number(1.0 - c.beta_1);
      slot(1) += (g * g - slot(1)) * number(1.0 - c.beta_2);
      if (c.flags == kAmsgrad) slot(2) = std::max(slot(2), slot(1));
      value -= slot(0) * rate / (std::sqrt(slot(c.flags == kAmsgrad ? 2 : 1)) + epsilon);
      break;
    }
    case OptimizerKind::kRmsprop: {
      slot(0) = number(c.rho) * slot(0) + number(1.0 - c.rho) * (g * g);
      Real denominator = slot(0) + epsilon;
      if (c.flags == kCentered) {
        Real& average = slot(c.momentum > 0.0 ? 2 : 1);
        average = number(c.rho) * average + number(1.0 - c.rho) * g;
        denominator = slot(0) - average * average + epsilon;
      }
      const Real increment = rate * g / std::sqrt(denominator);
      if (c.momentum > 0.0) slot(1) = number(c.momentum) * slot(1) + increment;
      value -= c.momentum > 0.0 ? slot(1) : increment;
      break;
    }
    case OptimizerKind::kFtrl: {
      const Real l1 = number(c.l1), l2 = number(c.l2) + number(c.beta) / (2 * rate);
      const Real before = slot(0);
      slot(0) += g * g;
      const Real sigma = (std::sqrt(slot(0)) - std::sqrt(before)) / rate;
      slot(1) += (g + number(2 * c.l2_shrinkage) * value) - sigma * value;
      value = (std::clamp(slot(1), -l1, l1) - slot(1)) / (std::sqrt(slot(0)) / rate + 2 * l2);
      break;
    }
  }
}

template <typename Real>
void UpdateRow(const OptimizerConfig& c, Real rate, const float* gradient, Row<Real>* row) {
  const size_t dim = row->values.size();
  const auto scaled = [&](size_t i) {
    return std::is_same_v<Real, float> ? static_cast<Real>(gradient[i] * kScale)
                                       : static_cast<Real>(double{gradient[i]} * kScale);
  };
  if (c.kind != OptimizerKind::kRowAdagrad) {
    for (size_t i = 0; i < dim; ++i) UpdateValue<Real>(c, rate, scaled(i), i, row);
    return;
  }
  double squares = 0;
  for (size_t i = 0; i < dim; ++i) squares += double{scaled(i)} * scaled(i);
  Real& accumulator = row->slots[0][0];
  accumulator += static_cast<Real>(squares / static_cast<double>(dim));
  const Real factor = rate / (std::sqrt(accumulator) + static_cast<Real>(c.epsilon));
  for (size_t i = 0; i < dim; ++i) row->values[i] -= factor * scaled(i);
}

double TrueRate(const OptimizerConfig& config, int step) {
  if (config.kind != OptimizerKind::kAdam) return kLearningRate;
  return kLearningRate * std::sqrt(1.0 - std::pow(config.beta_2, step)) /
         (1.0 - std::pow(config.beta_1, step));
}

template <typename Real>
Row<Real> FreshRow(const OptimizerConfig& config, const std::vector<float>& values) {
  const auto dim = static_cast<int64_t>(values.size());
  const bool one = config.kind == OptimizerKind::kRowAdagrad;
  const auto width = static_cast<size_t>(one ? 1 : dim);
  const auto slots = static_cast<size_t>(StateFloats(config, dim)) / width;
  Row<Real> row = {{values.begin(), values.end()}, {}};
  row.slots.assign(slots, std::vector<Real>(width, Real{0}));
  const bool accumulates =
      one || config.kind == OptimizerKind::kAdagrad || config.kind == OptimizerKind::kFtrl;
  if (accumulates) row.slots[0].assign(width, Real{config.initial_accumulator_value});
  return row;
}

// One row in memory that starts `offset` floats after an aligned address, with guards behind it.
class GuardedRow {
 public:
  GuardedRow(const OptimizerConfig& config, int64_t dim, int64_t offset)
      : config_(config),
        dim_(dim),
        offset_(offset),
        row_(offset + dim + 1, kGuard),
        state_(offset + StateFloats(config, dim) + 1, kGuard),
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

class ApplyRowTest : public testing::TestWithParam<NamedOptimizer> {
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

  const OptimizerConfig config_ = GetParam().config;
};

TEST_P(ApplyRowTest, StaysWithinAMillionthOfTheDoubleReference) {
  ForEachRow([this](GuardedRow* row, int64_t dim) {
    Row<double> reference = FreshRow<double>(config_, row->start());
    double largest = 0.0;
    row->Train([&](const OptimizerStep&, int step, const float* gradient) {
      UpdateRow<double>(config_, TrueRate(config_, step), gradient, &reference);
      for (const double value : reference.values) largest = std::max(largest, std::fabs(value));
    });
    // Where numbers near each other are subtracted, more is lost.
    const bool subtracts = config_.kind == OptimizerKind::kFtrl || config_.flags == kCentered;
    const double tolerance = (subtracts ? 1e-5 : 1e-6) * largest;
    for (int64_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(row->embedding()[i], reference.values[static_cast<size_t>(i)], tolerance) << i;
    }
  });
}

TEST_P(ApplyRowTest, EqualsTheScalarOperationsBitForBit) {
  ForEachRow([this](GuardedRow* row, int64_t dim) {
    Row<float> reference = FreshRow<float>(config_, row->start());
    row->Train([&](const OptimizerStep& prepared, int, const float* gradient) {
      UpdateRow<float>(config_, prepared.learning_rate, gradient, &reference);
      for (int64_t i = 0; i < dim; ++i) {
        ASSERT_EQ(row->embedding()[i], reference.values[static_cast<size_t>(i)]) << i;
      }
      const float* state = row->state();
      for (const std::vector<float>& slot : reference.slots) {
        for (const float wanted : slot) ASSERT_EQ(*state++, wanted);
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(, ApplyRowTest, testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

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

TEST(ValidateOptimizerTest, AcceptsEveryOptimizer) {
  EXPECT_TRUE(ValidateOptimizer(Config(OptimizerKind::kNone)).ok());
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    EXPECT_TRUE(ValidateOptimizer(optimizer.config).ok()) << optimizer;
    EXPECT_LE(StateFloats(optimizer.config, 7), MaxStateFloats(7));
  }
}

TEST(ValidateOptimizerTest, RefusesWhatCanNeverWork) {
  std::vector<OptimizerConfig> refused(14, Config(OptimizerKind::kAdam));
  refused[0].kind = static_cast<OptimizerKind>(7);
  refused[1].beta_1 = 1.0;
  refused[2].beta_1 = -0.1;
  refused[3].beta_2 = std::nan("");
  refused[4].epsilon = -1e-7f;
  refused[5].epsilon = std::numeric_limits<float>::infinity();
  refused[6].initial_accumulator_value = -0.1f;
  refused[7].initial_accumulator_value = std::nanf("");
  refused[8].flags = kNesterov;
  refused[9].momentum = 1.0;
  refused[10].rho = std::nan("");
  refused[11].l1 = -1.0;
  refused[12].l2_shrinkage = std::numeric_limits<double>::infinity();
  refused[13].flags = 16;
  for (const OptimizerConfig& config : refused) {
    const Status status = ValidateOptimizer(config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("Received: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tfhybrid::optimizer_test
