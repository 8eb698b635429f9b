#include "core/compute/optimizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// Each loop does Keras's operations in Keras's order, in float32.

TFHYBRID_SIMD void ApplySgd(float learning_rate, int64_t dim, const float* __restrict gradient,
                            float scale, float* __restrict embedding) {
  for (int64_t i = 0; i < dim; ++i) {
    embedding[i] -= gradient[i] * scale * learning_rate;
  }
}

TFHYBRID_SIMD void ApplyAdagrad(const OptimizerStep& step, int64_t dim,
                                const float* __restrict gradient, float scale,
                                float* __restrict embedding, float* __restrict accumulator) {
  const float learning_rate = step.learning_rate;
  const float epsilon = step.config.epsilon;
  for (int64_t i = 0; i < dim; ++i) {
    const float g = gradient[i] * scale;
    accumulator[i] += g * g;
    embedding[i] -= learning_rate * g / std::sqrt(accumulator[i] + epsilon);
  }
}

struct AdamFactors {
  float scale;
  float alpha;
  float momentum_rate;  // 1 - beta_1
  float velocity_rate;  // 1 - beta_2
  float epsilon;
};

TFHYBRID_SIMD void ApplyAdam(const AdamFactors& factors, int64_t dim,
                             const float* __restrict gradient, float* __restrict embedding,
                             float* __restrict momentum, float* __restrict velocity) {
  const AdamFactors f = factors;
  for (int64_t i = 0; i < dim; ++i) {
    const float g = gradient[i] * f.scale;
    momentum[i] += (g - momentum[i]) * f.momentum_rate;
    velocity[i] += (g * g - velocity[i]) * f.velocity_rate;
    embedding[i] -= momentum[i] * f.alpha / (std::sqrt(velocity[i]) + f.epsilon);
  }
}

AdamFactors MakeAdamFactors(const OptimizerStep& step, float scale) {
  return {scale, step.learning_rate, static_cast<float>(1.0 - step.config.beta_1),
          static_cast<float>(1.0 - step.config.beta_2), step.config.epsilon};
}

// std::pow is not exactly rounded and differs between libraries; hosts must agree on every bit.
double IntegerPower(double base, int64_t exponent) {
  double power = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= base;
    base *= base;
  }
  return power;
}

bool IsBeta(double value) { return value >= 0.0 && value < 1.0; }
bool IsNonNegative(double value) { return value >= 0.0 && value <= FLT_MAX; }

}  // namespace

Status ValidateOptimizer(const OptimizerConfig& config) {
  if (config.kind > OptimizerKind::kAdam) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "unknown optimizer kind. Received: ", static_cast<uint32_t>(config.kind));
  }
  if (!IsBeta(config.beta_1) || !IsBeta(config.beta_2)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "beta_1 and beta_2 must be at least 0 and below 1. Received: ",
                         config.beta_1, " and ", config.beta_2);
  }
  if (!IsNonNegative(config.epsilon) || !IsNonNegative(config.initial_accumulator_value)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "epsilon and initial_accumulator_value must be finite and not negative. "
                         "Received: ",
                         config.epsilon, " and ", config.initial_accumulator_value);
  }
  return Status::Ok();
}

void InitializeState(const OptimizerConfig& config, int64_t dim, float* state) {
  const bool adagrad = config.kind == OptimizerKind::kAdagrad;
  std::fill_n(state, StateSlots(config.kind) * dim,
              adagrad ? config.initial_accumulator_value : 0.0f);
}

OptimizerStep PrepareStep(const OptimizerConfig& config, float learning_rate, int64_t step) {
  double rate = learning_rate;
  if (config.kind == OptimizerKind::kAdam) {
    rate *= std::sqrt(1.0 - IntegerPower(config.beta_2, step)) /
            (1.0 - IntegerPower(config.beta_1, step));
  }
  return {config, static_cast<float>(rate)};
}

void ApplyRow(const OptimizerStep& step, int64_t dim, const float* gradient, float scale,
              float* embedding, float* state) {
  switch (step.config.kind) {
    case OptimizerKind::kNone:
      break;
    case OptimizerKind::kSgd:
      ApplySgd(step.learning_rate, dim, gradient, scale, embedding);
      break;
    case OptimizerKind::kAdagrad:
      ApplyAdagrad(step, dim, gradient, scale, embedding, state);
      break;
    case OptimizerKind::kAdam:
      ApplyAdam(MakeAdamFactors(step, scale), dim, gradient, embedding, state, state + dim);
      break;
  }
}

}  // namespace tfhybrid
