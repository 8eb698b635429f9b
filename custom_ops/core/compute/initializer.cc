#include "core/compute/initializer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/util/hash.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// The standard normal distribution function at -2, and what it gains up to 2.
constexpr double kNormalBelowMinusTwo = 0.022750131948179207;
constexpr double kNormalWithinTwo = 0.95449973610364158;

uint64_t RowHash(uint64_t table_seed, int64_t key) {
  return Mix64(Mix64(static_cast<uint64_t>(key) + kGoldenGamma) ^ table_seed);
}

// u(key, column) of the header. Exact: 33 significant bits.
inline double UnitSample(uint64_t row_hash, int64_t column) {
  const uint64_t bits = Mix64(row_hash + static_cast<uint64_t>(column + 1) * kGoldenGamma);
  return (static_cast<double>(static_cast<uint32_t>(bits >> 32)) + 0.5) * 0x1p-32;
}

// The natural logarithm of a positive normal number, within 1e-10 relative: x = m * 2^e with m in
// [sqrt(1/2), sqrt(2)), log m by the series of 2 atanh((m - 1) / (m + 1)). std::log is not exactly
// rounded and differs between libraries, so no two of them need agree on a row.
inline double Log(double x) {
  constexpr uint64_t kOne = 0x3ff0000000000000ull;
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  constexpr uint64_t kFraction = 0x000fffffffffffffull;
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits += kOne - kSqrtHalf;
  const double e = static_cast<double>(static_cast<int32_t>(bits >> 52) - 1023);
  bits = (bits & kFraction) + kSqrtHalf;
  double m;
  std::memcpy(&m, &bits, sizeof m);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double series =
      ((((z * (1.0 / 11) + 1.0 / 9) * z + 1.0 / 7) * z + 1.0 / 5) * z + 1.0 / 3) * z + 1.0;
  return 2.0 * s * series + e * 0.69314718055994531;
}

// Both branches of AS 241 are computed and one is chosen, so that the loop over a row vectorises.
// The third branch (below 1.4e-11) is not needed: u is at least 2^-33.
inline double Quantile(double u) {
  const double q = u - 0.5;
  const double r = 0.180625 - q * q;
  const double t = std::sqrt(-Log(std::min(u, 1.0 - u))) - 1.6;
  const double central_numerator =
      q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179);
  const double central_denominator =
      ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0;
  const double tail_numerator =
      ((0.17023821103 * t + 1.3067284816) * t + 2.7568153900) * t + 1.4234372777;
  const double tail_denominator = (0.12021132975 * t + 0.73700164250) * t + 1.0;
  const bool central = std::fabs(q) <= 0.425;
  const double numerator = central ? central_numerator : std::copysign(tail_numerator, q);
  return numerator / (central ? central_denominator : tail_denominator);
}

TFHYBRID_SIMD void FillUniform(const Initializer& initializer, uint64_t row_hash, int64_t dim,
                               float* row) {
  const double minval = initializer.a;
  const double range = initializer.b - initializer.a;
  for (int64_t c = 0; c < dim; ++c) {
    row[c] = static_cast<float>(minval + range * UnitSample(row_hash, c));
  }
}

TFHYBRID_SIMD void FillNormal(const Initializer& initializer, uint64_t row_hash, int64_t dim,
                              float* row) {
  const double mean = initializer.a;
  const double stddev = initializer.b;
  for (int64_t c = 0; c < dim; ++c) {
    row[c] = static_cast<float>(mean + stddev * Quantile(UnitSample(row_hash, c)));
  }
}

TFHYBRID_SIMD void FillTruncatedNormal(const Initializer& initializer, uint64_t row_hash,
                                       int64_t dim, float* row) {
  const double mean = initializer.a;
  const double stddev = initializer.b;
  for (int64_t c = 0; c < dim; ++c) {
    const double u = kNormalBelowMinusTwo + kNormalWithinTwo * UnitSample(row_hash, c);
    const double q = std::max(-2.0, std::min(2.0, Quantile(u)));
    row[c] = static_cast<float>(mean + stddev * q);
  }
}

bool FitsFloat(double value) { return std::fabs(value) <= FLT_MAX; }  // false for NaN

}  // namespace

Status ValidateInitializer(const Initializer& initializer) {
  const double a = initializer.a;
  const double b = initializer.b;
  if (!FitsFloat(a) || !FitsFloat(b)) {
    return Status::Error(
        StatusCode::kInvalidArgument,
        "an initializer's parameters must be finite float32 numbers. Received: ", a, " and ", b);
  }
  switch (initializer.kind) {
    case InitializerKind::kZeros:
    case InitializerKind::kConstant:
      return Status::Ok();
    case InitializerKind::kUniform:
      if (a <= b) return Status::Ok();
      return Status::Error(StatusCode::kInvalidArgument,
                           "minval must not exceed maxval. Received: minval ", a, ", maxval ", b);
    case InitializerKind::kNormal:
    case InitializerKind::kTruncatedNormal:
      if (b >= 0) return Status::Ok();
      return Status::Error(StatusCode::kInvalidArgument,
                           "stddev must not be negative. Received: ", b);
  }
  return Status::Error(StatusCode::kInvalidArgument, "unknown initializer kind. Received: ",
                       static_cast<uint32_t>(initializer.kind));
}

double NormalQuantile(double u) { return Quantile(u); }

void InitializeRow(const Initializer& initializer, uint64_t table_seed, int64_t key,
                   Span<float> row) {
  const uint64_t row_hash = RowHash(table_seed, key);
  switch (initializer.kind) {
    case InitializerKind::kZeros:
      std::fill(row.begin(), row.end(), 0.0f);
      break;
    case InitializerKind::kConstant:
      std::fill(row.begin(), row.end(), static_cast<float>(initializer.a));
      break;
    case InitializerKind::kUniform:
      FillUniform(initializer, row_hash, row.size(), row.data());
      break;
    case InitializerKind::kNormal:
      FillNormal(initializer, row_hash, row.size(), row.data());
      break;
    case InitializerKind::kTruncatedNormal:
      FillTruncatedNormal(initializer, row_hash, row.size(), row.data());
      break;
  }
}

uint64_t TableSeed(uint64_t job_seed, const char* table_name, int64_t name_length) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (int64_t i = 0; i < name_length; ++i) {
    hash = (hash ^ static_cast<unsigned char>(table_name[i])) * 0x100000001b3ull;
  }
  return Mix64(Mix64(job_seed + kGoldenGamma) ^ hash);
}

}  // namespace tfhybrid
