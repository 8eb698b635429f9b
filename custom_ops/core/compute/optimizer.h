// The sparse optimizers: how one averaged gradient changes one row. Pure functions on floats,
// without any store type.
//
// Each performs the operations of the Keras optimizer of that name, in the same order, on the
// touched rows. Rows that a step does not touch stay unchanged ("lazy" Adam). A row's optimizer
// state has StateFloats() floats: vectors of `dim` floats, one after the other:
//
//     SGD         none, or [momentum]
//     Adagrad     [accumulator]
//     Adam        [momentum | velocity], with AMSGrad also [largest velocity]
//     RMSprop     [velocity], with momentum also [momentum], centered also [average]
//     FTRL        [accumulator | linear]
//     RowAdagrad  a single float, the accumulator of the whole row
//
// Thread-safe: no state. Two calls may run in parallel on different rows.
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
  kRmsprop = 4,
  kFtrl = 5,
  kRowAdagrad = 6,  // as FBGEMM has it
};

// Bits of OptimizerConfig::flags.
inline constexpr uint32_t kNesterov = 1;  // SGD
inline constexpr uint32_t kAmsgrad = 2;   // Adam
inline constexpr uint32_t kCentered = 4;  // RMSprop
// For all kinds: a step also updates the rows that it does not touch, with a gradient of zero and
// the penalties, as Keras updates a dense variable.
inline constexpr uint32_t kEveryRow = 8;

// Constant over a table's life, and stored in its segment unchanged (core/store/layout.h). The
// learning rate is not here: it comes with each update.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kNone;
  float initial_accumulator_value = 0.1f;  // Adagrad, RowAdagrad, FTRL
  float epsilon = 1e-7f;                   // all but SGD and FTRL
  uint32_t flags = 0;
  // Adam. Double, as in Keras: 1 - beta is what counts, and 1 - 0.999f is off by 1.3e-5.
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double momentum = 0.0;  // SGD, RMSprop
  double rho = 0.9;       // RMSprop
  // FTRL, as its paper and Keras name them; the learning rate's power is -0.5.
  double l1 = 0.0;
  double l2 = 0.0;
  double l2_shrinkage = 0.0;
  double beta = 0.0;
  // These apply to every optimizer (core/compute/row_update.h).
  double weight_decay = 0.0;
  double penalty_l1 = 0.0;
  double penalty_l2 = 0.0;
};

bool operator==(const OptimizerConfig& a, const OptimizerConfig& b);

// Refuses unknown kinds and flags, decay rates outside [0, 1), and negative or non-finite numbers.
Status ValidateOptimizer(const OptimizerConfig& config);

// Floats of a row's optimizer state.
int64_t StateFloats(const OptimizerConfig& config, int64_t dim);
// The maximum over all optimizers.
constexpr int64_t MaxStateFloats(int64_t dim) { return 3 * dim; }

// Writes a new row's optimizer state.
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
