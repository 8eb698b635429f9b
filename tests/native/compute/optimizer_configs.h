// Every optimizer, with settings that its defaults do not have too.
#ifndef TFHYBRID_TESTS_NATIVE_COMPUTE_OPTIMIZER_CONFIGS_H_
#define TFHYBRID_TESTS_NATIVE_COMPUTE_OPTIMIZER_CONFIGS_H_

#include <ostream>
#include <string>
#include <vector>

#include "core/compute/optimizer.h"

namespace tfhybrid {

struct NamedOptimizer {
  std::string name;
  OptimizerConfig config;
};

inline std::ostream& operator<<(std::ostream& stream, const NamedOptimizer& optimizer) {
  return stream << optimizer.name;
}

inline std::vector<NamedOptimizer> AllOptimizers() {
  std::vector<NamedOptimizer> all;
  const auto add = [&](const std::string& name, OptimizerKind kind, uint32_t flags = 0) {
    all.push_back({name, {}});
    all.back().config.kind = kind;
    all.back().config.flags = flags;
    return &all.back().config;
  };
  add("Sgd", OptimizerKind::kSgd);
  add("Momentum", OptimizerKind::kSgd)->momentum = 0.9;
  add("Nesterov", OptimizerKind::kSgd, kNesterov)->momentum = 0.7;
  add("Adagrad", OptimizerKind::kAdagrad);
  add("Adam", OptimizerKind::kAdam);
  add("Amsgrad", OptimizerKind::kAdam, kAmsgrad)->beta_2 = 0.9;
  add("Rmsprop", OptimizerKind::kRmsprop);
  add("RmspropMomentum", OptimizerKind::kRmsprop)->momentum = 0.8;
  OptimizerConfig* centered = add("RmspropCentered", OptimizerKind::kRmsprop, kCentered);
  centered->rho = 0.8;
  centered->epsilon = 1e-3f;  // what is under the root may come near 0
  OptimizerConfig* both = add("RmspropBoth", OptimizerKind::kRmsprop, kCentered);
  both->momentum = 0.5;
  both->epsilon = 1e-3f;
  add("Ftrl", OptimizerKind::kFtrl);
  OptimizerConfig* regularised = add("FtrlRegularised", OptimizerKind::kFtrl);
  regularised->l1 = 0.02;
  regularised->l2 = 0.1;
  regularised->l2_shrinkage = 0.05;
  regularised->beta = 0.3;
  add("RowAdagrad", OptimizerKind::kRowAdagrad);
  return all;
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_COMPUTE_OPTIMIZER_CONFIGS_H_
