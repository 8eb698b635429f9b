#include "core/compute/optimizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <tuple>

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

TFHYBRID_SIMD void ApplyAmsgrad(const AdamFactors& factors, int64_t dim,
                                const float* __restrict gradient, float* __restrict embedding,
                                float* __restrict momentum, float* __restrict velocity,
                                float* __restrict largest) {
  const AdamFactors f = factors;
  for (int64_t i = 0; i < dim; ++i) {
    const float g = gradient[i] * f.scale;
    momentum[i] += (g - momentum[i]) * f.momentum_rate;
    velocity[i] += (g * g - velocity[i]) * f.velocity_rate;
    largest[i] = velocity[i] > largest[i] ? velocity[i] : largest[i];
    embedding[i] -= momentum[i] * f.alpha / (std::sqrt(largest[i]) + f.epsilon);
  }
}

TFHYBRID_SIMD void ApplyMomentum(const OptimizerStep& step, int64_t dim,
                                 const float* __restrict gradient, float scale,
                                 float* __restrict embedding, float* __restrict momentum) {
  const float rate = step.learning_rate;
  const auto decay = static_cast<float>(step.config.momentum);
  for (int64_t i = 0; i < dim; ++i) {
    momentum[i] = momentum[i] * decay - gradient[i] * scale * rate;
    embedding[i] += momentum[i];
  }
}

TFHYBRID_SIMD void ApplyNesterov(const OptimizerStep& step, int64_t dim,
                                 const float* __restrict gradient, float scale,
                                 float* __restrict embedding, float* __restrict momentum) {
  const float rate = step.learning_rate;
  const auto decay = static_cast<float>(step.config.momentum);
  for (int64_t i = 0; i < dim; ++i) {
    const float along = gradient[i] * scale * rate;
    momentum[i] = momentum[i] * decay - along;
    embedding[i] += momentum[i] * decay - along;
  }
}

// `average` may be null, and so may `momentum`: not centered, and without.
TFHYBRID_SIMD void ApplyRmsprop(const OptimizerStep& step, int64_t dim,
                                const float* __restrict gradient, float scale,
                                float* __restrict embedding, float* __restrict velocity,
                                float* __restrict momentum, float* __restrict average) {
  const float rate = step.learning_rate;
  const float epsilon = step.config.epsilon;
  const auto rho = static_cast<float>(step.config.rho);
  const auto rest = static_cast<float>(1.0 - step.config.rho);
  const auto decay = static_cast<float>(step.config.momentum);
  for (int64_t i = 0; i < dim; ++i) {
    const float g = gradient[i] * scale;
    velocity[i] = rho * velocity[i] + rest * (g * g);
    float denominator = velocity[i] + epsilon;
    if (average != nullptr) {
      average[i] = rho * average[i] + rest * g;
      denominator = velocity[i] - average[i] * average[i] + epsilon;
    }
    const float increment = rate * g / std::sqrt(denominator);
    if (momentum != nullptr) momentum[i] = decay * momentum[i] + increment;
    embedding[i] -= momentum != nullptr ? momentum[i] : increment;
  }
}

// McMahan et al., 2013, with the learning rate's power -0.5.
TFHYBRID_SIMD void ApplyFtrl(const OptimizerStep& step, int64_t dim,
                             const float* __restrict gradient, float scale,
                             float* __restrict embedding, float* __restrict accumulator,
                             float* __restrict linear) {
  const float rate = step.learning_rate;
  const auto l1 = static_cast<float>(step.config.l1);
  const auto beta = static_cast<float>(step.config.beta);
  const float l2 = static_cast<float>(step.config.l2) + beta / (2.0f * rate);
  const auto shrinkage = static_cast<float>(2.0 * step.config.l2_shrinkage);
  for (int64_t i = 0; i < dim; ++i) {
    const float g = gradient[i] * scale;
    const float sum = accumulator[i] + g * g;
    const float root = std::sqrt(sum);
    const float sigma = (root - std::sqrt(accumulator[i])) / rate;
    linear[i] += (g + shrinkage * embedding[i]) - sigma * embedding[i];
    const float quadratic = root / rate + 2.0f * l2;
    const float clipped = linear[i] < -l1 ? -l1 : linear[i] > l1 ? l1 : linear[i];
    embedding[i] = (clipped - linear[i]) / quadratic;
    accumulator[i] = sum;
  }
}

TFHYBRID_SIMD void Descend(float factor, int64_t dim, const float* __restrict gradient, float scale,
                           float* __restrict embedding) {
  for (int64_t i = 0; i < dim; ++i) embedding[i] -= factor * (gradient[i] * scale);
}

// One accumulator for the row: the mean of its squared gradients. In one order, whatever the width
// of vectors is.
void ApplyRowAdagrad(const OptimizerStep& step, int64_t dim, const float* gradient, float scale,
                     float* embedding, float* accumulator) {
  double squares = 0.0;
  for (int64_t i = 0; i < dim; ++i) {
    const double g = gradient[i] * scale;
    squares += g * g;
  }
  *accumulator += static_cast<float>(squares / static_cast<double>(dim));
  const float factor = step.learning_rate / (std::sqrt(*accumulator) + step.config.epsilon);
  Descend(factor, dim, gradient, scale, embedding);
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

// Vectors of `dim` floats.
int64_t StateSlots(const OptimizerConfig& config) {
  switch (config.kind) {
    case OptimizerKind::kSgd:
      return config.momentum > 0.0 ? 1 : 0;
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
      return (config.flags & kAmsgrad) != 0 ? 3 : 2;
    case OptimizerKind::kRmsprop:
      return 1 + (config.momentum > 0.0) + ((config.flags & kCentered) != 0);
    case OptimizerKind::kFtrl:
      return 2;
    case OptimizerKind::kNone:
    case OptimizerKind::kRowAdagrad:
      return 0;
  }
  return 0;
}

uint32_t FlagsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return kNesterov | kEveryRow;
    case OptimizerKind::kAdam:
      return kAmsgrad | kEveryRow;
    case OptimizerKind::kRmsprop:
      return kCentered | kEveryRow;
    default:
      return kEveryRow;
  }
}

}  // namespace

bool operator==(const OptimizerConfig& a, const OptimizerConfig& b) {
  const auto numbers = [](const OptimizerConfig& c) {
    return std::make_tuple(c.kind, c.flags, c.initial_accumulator_value, c.epsilon, c.beta_1,
                           c.beta_2, c.momentum, c.rho, c.l1, c.l2, c.l2_shrinkage, c.beta,
                           c.weight_decay, c.penalty_l1, c.penalty_l2);
  };
  return numbers(a) == numbers(b);
}

Status ValidateOptimizer(const OptimizerConfig& config) {
  if (config.kind > OptimizerKind::kRowAdagrad) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "unknown optimizer kind. Received: ", static_cast<uint32_t>(config.kind));
  }
  if ((config.flags & ~FlagsOf(config.kind)) != 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "unknown flags of an optimizer. Received: ", config.flags);
  }
  if (!IsBeta(config.beta_1) || !IsBeta(config.beta_2) || !IsBeta(config.momentum) ||
      !IsBeta(config.rho)) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "beta_1, beta_2, momentum and rho must be at least 0 and below 1. "
                         "Received: ",
                         config.beta_1, ", ", config.beta_2, ", ", config.momentum, " and ",
                         config.rho);
  }
  for (const double number : {double{config.epsilon}, double{config.initial_accumulator_value},
                              config.l1, config.l2, config.l2_shrinkage, config.beta,
                              config.weight_decay, config.penalty_l1, config.penalty_l2}) {
    if (IsNonNegative(number)) continue;
    return Status::Error(
        StatusCode::kInvalidArgument,
        "an optimizer's numbers must be finite and not negative. Received: ", number);
  }
  return Status::Ok();
}

int64_t StateFloats(const OptimizerConfig& config, int64_t dim) {
  return config.kind == OptimizerKind::kRowAdagrad ? 1 : StateSlots(config) * dim;
}

void InitializeState(const OptimizerConfig& config, int64_t dim, float* state) {
  std::fill_n(state, StateFloats(config, dim), 0.0f);
  // Where there is an accumulator, it comes first.
  const float initial = config.initial_accumulator_value;
  if (config.kind == OptimizerKind::kRowAdagrad) *state = initial;
  if (config.kind == OptimizerKind::kAdagrad || config.kind == OptimizerKind::kFtrl) {
    std::fill_n(state, dim, initial);
  }
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
  const OptimizerConfig& config = step.config;
  switch (config.kind) {
    case OptimizerKind::kNone:
      break;
    case OptimizerKind::kSgd:
      if (config.momentum == 0.0) {
        ApplySgd(step.learning_rate, dim, gradient, scale, embedding);
      } else if ((config.flags & kNesterov) != 0) {
        ApplyNesterov(step, dim, gradient, scale, embedding, state);
      } else {
        ApplyMomentum(step, dim, gradient, scale, embedding, state);
      }
      break;
    case OptimizerKind::kAdagrad:
      ApplyAdagrad(step, dim, gradient, scale, embedding, state);
      break;
    case OptimizerKind::kAdam:
      if ((config.flags & kAmsgrad) != 0) {
        ApplyAmsgrad(MakeAdamFactors(step, scale), dim, gradient, embedding, state, state + dim,
                     state + 2 * dim);
      } else {
        ApplyAdam(MakeAdamFactors(step, scale), dim, gradient, embedding, state, state + dim);
      }
      break;
    case OptimizerKind::kRmsprop: {
      float* momentum = config.momentum > 0.0 ? state + dim : nullptr;
      const bool centered = (config.flags & kCentered) != 0;
      float* average = centered ? state + (momentum != nullptr ? 2 : 1) * dim : nullptr;
      ApplyRmsprop(step, dim, gradient, scale, embedding, state, momentum, average);
      break;
    }
    case OptimizerKind::kFtrl:
      ApplyFtrl(step, dim, gradient, scale, embedding, state, state + dim);
      break;
    case OptimizerKind::kRowAdagrad:
      ApplyRowAdagrad(step, dim, gradient, scale, embedding, state);
      break;
  }
}

}  // namespace tfhybrid
