// A table's optimizer as it lies in the table's segment.
#ifndef TFHYBRID_CORE_STORE_TABLE_OPTIMIZER_H_
#define TFHYBRID_CORE_STORE_TABLE_OPTIMIZER_H_

#include "core/compute/optimizer.h"
#include "core/store/layout.h"

namespace tfhybrid {

inline TableOptimizer ToLayout(const OptimizerConfig& config) {
  return {static_cast<uint32_t>(config.kind),
          config.initial_accumulator_value,
          config.epsilon,
          config.flags,
          config.beta_1,
          config.beta_2,
          config.momentum,
          config.rho,
          config.l1,
          config.l2,
          config.l2_shrinkage,
          config.beta,
          config.weight_decay,
          config.penalty_l1,
          config.penalty_l2};
}

// Not yet checked.
inline OptimizerConfig FromLayout(const TableOptimizer& saved) {
  return {static_cast<OptimizerKind>(saved.kind),
          saved.flags,
          saved.initial_accumulator_value,
          saved.epsilon,
          saved.beta_1,
          saved.beta_2,
          saved.momentum,
          saved.rho,
          saved.l1,
          saved.l2,
          saved.l2_shrinkage,
          saved.beta,
          saved.weight_decay,
          saved.penalty_l1,
          saved.penalty_l2};
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_OPTIMIZER_H_
