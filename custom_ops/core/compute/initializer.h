// The initial value of an embedding: a pure function of (table seed, key, column).
//
// A key that has no row yet reads this value, and its row starts from it, so a lookup never writes
// and replicas on different hosts agree without talking. Only +, -, *, / and sqrt of doubles and
// 64-bit integer mixing are used, each exactly rounded, so that stock TensorFlow operations compute
// the same bits (tests/unit/test_initial_values.py).
//
//   h(key)         = Mix64(Mix64(uint64(key) + kGoldenGamma) ^ seed)
//   bits(key, c)   = Mix64(h(key) + (c + 1) * kGoldenGamma)
//   u(key, c)      = ((bits >> 32) + 0.5) * 2^-32, in (0, 1)
//   uniform        = minval + (maxval - minval) * u
//   normal         = mean + stddev * NormalQuantile(u)
//   truncated      = mean + stddev * clamp(NormalQuantile(P(-2) + (P(2) - P(-2)) * u), -2, 2),
//                    P the standard normal distribution function
//
// Computed in double, rounded to float once at the end.
#ifndef TFHYBRID_CORE_COMPUTE_INITIALIZER_H_
#define TFHYBRID_CORE_COMPUTE_INITIALIZER_H_

#include <cstdint>

#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The numbers are stored in segments and checkpoints.
enum class InitializerKind : uint32_t {
  kZeros = 0,
  kConstant = 1,         // a: the value
  kUniform = 2,          // a: minval, b: maxval
  kNormal = 3,           // a: mean, b: stddev
  kTruncatedNormal = 4,  // a: mean, b: stddev; values lie within two stddev of the mean
};

struct Initializer {
  InitializerKind kind = InitializerKind::kZeros;
  double a = 0.0;
  double b = 0.0;
};

// Refuses unknown kinds, parameters that are no finite float, minval > maxval and negative stddev.
Status ValidateInitializer(const Initializer& initializer);

// The quantile function of the standard normal distribution, AS 241 PPND7 (Wichura 1988) with a
// logarithm of our own; within 1e-6 of the truth.
// REQUIRES: 2^-33 <= u <= 1 - 2^-33.
double NormalQuantile(double u);

// Writes the initial embedding of `key` to `row` (row.size() columns).
void InitializeRow(const Initializer& initializer, uint64_t table_seed, int64_t key,
                   Span<float> row);

// The seed of a table: equal configurations do not start equal, because the name takes part:
// Mix64(Mix64(job_seed + kGoldenGamma) ^ FNV-1a 64 of the name's bytes).
uint64_t TableSeed(uint64_t job_seed, const char* table_name, int64_t name_length);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_INITIALIZER_H_
