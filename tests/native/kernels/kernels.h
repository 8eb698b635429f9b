// The functions of core/compute whose loops are compiled once per vector width (core/util/simd.h),
// by pointer, so that several builds of them can stand beside each other.
#ifndef TFHYBRID_TESTS_NATIVE_KERNELS_KERNELS_H_
#define TFHYBRID_TESTS_NATIVE_KERNELS_KERNELS_H_

#include <cstdint>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/row_update.h"

namespace tfhybrid {

struct Kernels {
  decltype(&tfhybrid::ApplyRow) apply_row;
  decltype(&tfhybrid::UpdateRow) update_row;
  decltype(&tfhybrid::Squares) squares;
  decltype(&tfhybrid::InitializeRow) initialize_row;
  // Sum one row over `count` that lie end to end: of one rank's occurrences, and of ranks of which
  // two each are on a host.
  void (*sum_gradients)(const float* rows, int64_t count, int64_t dim, float* sum);
  void (*merge_ranks)(const float* rows, int64_t count, int64_t dim, float* sum);
  // Combines `count` weighted rows that lie end to end, and spreads a bag's gradient over its rows.
  void (*combine_bag)(const float* rows, int64_t count, int64_t dim, float* embedding);
  void (*spread_gradient)(const float* gradient, int64_t count, int64_t dim, float* sum);
};

}  // namespace tfhybrid

// Of the build that this is linked into.
extern "C" tfhybrid::Kernels tfhybrid_test_kernels();

#endif  // TFHYBRID_TESTS_NATIVE_KERNELS_KERNELS_H_
