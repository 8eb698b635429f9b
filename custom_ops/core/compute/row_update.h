// The parts of a row's update besides the optimizer: penalties and clipping change the gradient
// that the optimizer gets, decoupled weight decay shrinks the embedding.
//
// A penalty is part of the loss: l1 |w| + l2 w^2 for each number of a row that a step touches, as
// in Keras's regularizers. Its gradient is added once, after the reduction over ranks.
//
// Weight decay is that of AdamW (Loshchilov and Hutter, 2019): w *= 1 - learning_rate *
// weight_decay for all rows at every step, touched or not. So that a step costs nothing for rows
// that it does not touch, embeddings are stored divided by the table's `decay`, the product of
// these factors. A row's value falls as this one number falls (docs/design/0012-decay.md).
//
// Thread-safe: no state.
#ifndef TFHYBRID_CORE_COMPUTE_ROW_UPDATE_H_
#define TFHYBRID_CORE_COMPUTE_ROW_UPDATE_H_

#include <cstdint>
#include <limits>

#include "core/compute/optimizer.h"
#include "core/util/status.h"

namespace tfhybrid {

// How the gradients of a step are clipped, after the reduction and with penalties. Numbers are
// stored in journals.
enum class Clipping : uint32_t {
  kNone = 0,
  kValue = 1,       // each number to [-limit, limit]
  kNorm = 2,        // each table's gradients, all keys of the step together, to a norm of `limit`
  kGlobalNorm = 3,  // those of all tables and of the dense variables together
};

Result<Clipping> ParseClipping(const std::string& name);

// The factor for gradients whose squares sum to `squares`.
float ClipFactor(double squares, float limit);

// The constants of one update of a table.
struct RowUpdate {
  OptimizerStep optimizer;
  float clip_value = std::numeric_limits<float>::infinity();
  float clip_factor = 1.0f;
  float decay_before = 1.0f;  // of the table, before the update
  float decay_after = 1.0f;   // and after

  // Whether there is only the optimizer; then ApplyRow() is equal to UpdateRow().
  bool IsPlain() const;
};

// Writes the gradient of a row, whose reduced gradient is `sum` times `scale`, with penalties and
// clipped by value.
void RowGradient(const RowUpdate& update, int64_t dim, const float* sum, float scale,
                 const float* embedding, float* gradient);

// The sum of squares of a gradient, with the same bits on every machine.
double Squares(const float* gradient, int64_t count);

// Updates a row, where it lies. `scratch` has `dim` floats and may not be `sum`.
void UpdateRow(const RowUpdate& update, int64_t dim, const float* sum, float scale,
               float* embedding, float* state, float* scratch);

// The factor from a stored embedding to its value.
struct Decays {
  float rows = 1.0f;
  float initial = 1.0f;  // beside it, where the key has no row
};

void MultiplyRow(float factor, int64_t dim, float* embedding);

// Converts stored embeddings to their values, in place. Most tables have no decay.
inline void ScaleRow(float decay, int64_t dim, float* embedding) {
  if (decay != 1.0f) MultiplyRow(decay, dim, embedding);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_ROW_UPDATE_H_
