// The sparse optimizers: what one averaged gradient does to one row. Pure functions on floats;
// knows no store type.
//
// Each does its Keras namesake's operations in the same order on the touched rows; rows that a step
// does not touch stay as they are ("lazy" Adam). A row's optimizer state is `StateSlots(kind)`
// vectors of `dim` floats, one after the other:
//   SGD: none.  Adagrad: [accumulator].  Adam: [momentum | velocity].
//
// Thread-safe: no state. Two calls may run at once on different rows.
#ifndef TFHYBRID_CORE_COMPUTE_OPTIMIZER_H_
#define TFHYBRID_CORE_COMPUTE_OPTIMIZER_H_

#include <cstdint>

#include "core/util/status.h"

namespace tfhybrid {

// The numbers are stored in segments and checkpoints.
enum class OptimizerKind : uint32_t {
  kNone = 0,  // the table can be read, not updated
  kSgd = 1,
  kAdagrad = 2,
  kAdam = 3,
};

// Constant over a table's life. The learning rate is not here: it comes with each update.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kNone;
  float initial_accumulator_value = 0.1f;  // Adagrad
  // Adam. Double, as in Keras: 1 - beta is what counts, and 1 - 0.999f is off by 1.3e-5.
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  float epsilon = 1e-7f;  // Adagrad, Adam
};

// Refuses unknown kinds, betas outside [0, 1), negative or non-finite epsilon or accumulator.
Status ValidateOptimizer(const OptimizerConfig& config);

// Vectors of `dim` floats that a row's optimizer state holds.
constexpr int StateSlots(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam ? 2 : kind == OptimizerKind::kAdagrad ? 1 : 0;
}

// Writes a new row's optimizer state (StateSlots(kind) * dim floats).
void InitializeState(const OptimizerConfig& config, int64_t dim, float* state);

// The constants of one update, computed once per step and not per row (bias correction in double).
struct OptimizerStep {
  OptimizerConfig config;
  float learning_rate;  // Adam: already multiplied by sqrt(1 - beta_2^t) / (1 - beta_1^t)
};
// `step` is 1 for the first update.
OptimizerStep PrepareStep(const OptimizerConfig& config, float learning_rate, int64_t step);

// Applies gradient * `scale` (the reduction's factor, e.g. 1 / number of ranks) to a row in place.
void ApplyRow(const OptimizerStep& step, int64_t dim, const float* gradient, float scale,
              float* embedding, float* state);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_OPTIMIZER_H_
