#include "core/compute/row_update.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/util/simd.h"

namespace tfhybrid {
namespace {

TFHYBRID_SIMD void AddPenalties(float l1, float l2, float decay, int64_t dim,
                                const float* __restrict embedding, float* __restrict gradient) {
  for (int64_t i = 0; i < dim; ++i) {
    const float value = embedding[i] * decay;
    const float sign = value > 0.0f ? 1.0f : value < 0.0f ? -1.0f : 0.0f;
    gradient[i] += l1 * sign + 2.0f * l2 * value;
  }
}

TFHYBRID_SIMD void Multiply(float factor, int64_t dim, const float* __restrict from,
                            float* __restrict to) {
  for (int64_t i = 0; i < dim; ++i) to[i] = from[i] * factor;
}

TFHYBRID_SIMD void MultiplyInPlace(float factor, int64_t dim, float* row) {
  for (int64_t i = 0; i < dim; ++i) row[i] *= factor;
}

TFHYBRID_SIMD void Clip(float limit, int64_t dim, float* gradient) {
  for (int64_t i = 0; i < dim; ++i) {
    gradient[i] = gradient[i] < -limit ? -limit : gradient[i] > limit ? limit : gradient[i];
  }
}

TFHYBRID_SIMD void Divide(float divisor, int64_t dim, float* row) {
  for (int64_t i = 0; i < dim; ++i) row[i] /= divisor;
}

}  // namespace

Result<Clipping> ParseClipping(const std::string& name) {
  if (name == "none") return Clipping::kNone;
  if (name == "value") return Clipping::kValue;
  if (name == "norm") return Clipping::kNorm;
  if (name == "global_norm") return Clipping::kGlobalNorm;
  return Status::Error(StatusCode::kInvalidArgument,
                       "clipping is 'none', 'value', 'norm' or 'global_norm'. Received: '", name,
                       "'");
}

float ClipFactor(double squares, float limit) {
  const double norm = std::sqrt(squares);
  return norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

bool RowUpdate::IsPlain() const {
  const OptimizerConfig& config = optimizer.config;
  return config.penalty_l1 == 0.0 && config.penalty_l2 == 0.0 && std::isinf(clip_value) &&
         clip_factor == 1.0f && decay_before == 1.0f && decay_after == 1.0f;
}

void RowGradient(const RowUpdate& update, int64_t dim, const float* sum, float scale,
                 const float* embedding, float* gradient) {
  const OptimizerConfig& config = update.optimizer.config;
  Multiply(scale, dim, sum, gradient);
  if (config.penalty_l1 != 0.0 || config.penalty_l2 != 0.0) {
    AddPenalties(static_cast<float>(config.penalty_l1), static_cast<float>(config.penalty_l2),
                 update.decay_before, dim, embedding, gradient);
  }
  if (!std::isinf(update.clip_value)) Clip(update.clip_value, dim, gradient);
}

// In lanes, whose number is part of the result: the order of additions is the same whatever the
// width of vectors is.
TFHYBRID_SIMD double Squares(const float* gradient, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) {
      const double value = gradient[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double value = gradient[i];
    lanes[lane] += value * value;
  }
  double squares = 0.0;
  for (const double lane : lanes) squares += lane;
  return squares;
}

void UpdateRow(const RowUpdate& update, int64_t dim, const float* sum, float scale,
               float* embedding, float* state, float* scratch) {
  RowGradient(update, dim, sum, scale, embedding, scratch);
  ScaleRow(update.decay_after, dim, embedding);
  ApplyRow(update.optimizer, dim, scratch, update.clip_factor, embedding, state);
  if (update.decay_after != 1.0f) Divide(update.decay_after, dim, embedding);
}

// gcc 10 makes no versions of a function that is exported and also called in its own file.
void MultiplyRow(float factor, int64_t dim, float* embedding) {
  MultiplyInPlace(factor, dim, embedding);
}

}  // namespace tfhybrid
