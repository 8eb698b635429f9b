// What an update does to one row beside the optimizer: penalties and clipping make the gradient
// that the optimizer sees, decoupled decay shrinks the embedding.
//
// A penalty is part of the loss: l1 |w| + l2 w^2 for each number of a row that a step touches, as
// Keras's regularizers have it. Its gradient is added once, after the reduction over ranks.
//
// Decay is that of AdamW (Loshchilov and Hutter, 2019), w *= 1 - learning_rate * weight_decay for
// all rows at every step, touched or not. So that a step costs nothing for rows that it does not
// touch, embeddings lie divided by the table's `decay`, the product of these factors: what a row is
// worth falls as the one number falls (docs/design/0012-decay.md).
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

// What gradients whose squares add up to `squares` are multiplied by.
float ClipFactor(double squares, float limit);

// The constants of one update of a table.
struct RowUpdate {
  OptimizerStep optimizer;
  float clip_value = std::numeric_limits<float>::infinity();
  float clip_factor = 1.0f;
  float decay_before = 1.0f;  // of the table, before the update
  float decay_after = 1.0f;   // and after

  // Whether the optimizer alone is at work: then ApplyRow() does what UpdateRow() does.
  bool IsPlain() const;
};

// Writes the gradient of a row, of which `sum` times `scale` is the reduced one: with penalties,
// and clipped by value.
void RowGradient(const RowUpdate& update, int64_t dim, const float* sum, float scale,
                 const float* embedding, float* gradient);

// The sum of the squares of a gradient, the same bits on every machine.
double Squares(const float* gradient, int64_t count);

// Updates a row, where it lies. `scratch` has `dim` floats and may not be `sum`.
void UpdateRow(const RowUpdate& update, int64_t dim, const float* sum, float scale,
               float* embedding, float* state, float* scratch);

// What an embedding that lies without decay is to be multiplied by.
struct Decays {
  float rows = 1.0f;
  float initial = 1.0f;  // beside it, where the key has no row
};

void MultiplyRow(float factor, int64_t dim, float* embedding);

// Embeddings as they lie to what they are worth, in place. Most tables do not decay.
inline void ScaleRow(float decay, int64_t dim, float* embedding) {
  if (decay != 1.0f) MultiplyRow(decay, dim, embedding);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_ROW_UPDATE_H_
