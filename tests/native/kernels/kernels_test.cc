// All builds of the loops marked TFHYBRID_SIMD give the same bits, whatever the floats are: hosts
// with different processors train one model.
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "compute/optimizer_configs.h"

namespace tfhybrid::kernels_test {
namespace {

constexpr int64_t kMaxDim = 67;
constexpr float kGuard = 12345.0f;  // around what a kernel may write

struct Build {
  const char* name;
  const char* path;
  bool runs_here;
};

std::ostream& operator<<(std::ostream& stream, const Build& build) { return stream << build.name; }

std::vector<Build> Builds() {
  return {{"avx2", KERNELS_avx2, __builtin_cpu_supports("avx2") != 0},
          {"avx512f", KERNELS_avx512f, __builtin_cpu_supports("avx512f") != 0},
          {"shipped", nullptr, true}};
}

// Stays loaded.
Kernels Load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return reinterpret_cast<decltype(&tfhybrid_test_kernels)>(
      dlsym(library, "tfhybrid_test_kernels"))();
}

// Everything a float can be: a third of them special, the others of all exponents.
class Floats {
 public:
  explicit Floats(uint64_t seed) : random_(seed) {}

  float Next() {
    using Limits = std::numeric_limits<float>;
    static constexpr float kSpecial[] = {0.0f,
                                         1.0f,
                                         0.1f,
                                         Limits::denorm_min(),
                                         Limits::min(),
                                         Limits::min() - Limits::denorm_min(),
                                         Limits::epsilon(),
                                         Limits::max(),
                                         Limits::infinity(),
                                         Limits::quiet_NaN(),
                                         16777216.0f,
                                         1e-30f,
                                         1e30f};
    const auto bits = static_cast<uint32_t>(random_());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    if (bits % 3 == 0) value = kSpecial[random_() % std::size(kSpecial)];
    return random_() % 2 == 0 ? value : -value;
  }

  // `count` floats behind `offset` guards and in front of as many.
  std::vector<float> Row(int64_t count, int64_t offset) {
    std::vector<float> row(static_cast<size_t>(count + 2 * offset), kGuard);
    for (int64_t i = 0; i < count; ++i) row[static_cast<size_t>(offset + i)] = Next();
    return row;
  }

 private:
  std::mt19937_64 random_;
};

// Bit for bit, but that any NaN is as good as another.
testing::AssertionResult SameBits(const std::vector<float>& wanted,
                                  const std::vector<float>& received) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(received[i])) continue;
    if (std::memcmp(&wanted[i], &received[i], sizeof(float)) == 0) continue;
    return testing::AssertionFailure()
           << "at " << i << ": wanted " << wanted[i] << ", received " << received[i];
  }
  return testing::AssertionSuccess();
}

class KernelsTest : public testing::TestWithParam<Build> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here) GTEST_SKIP() << "this processor has no " << GetParam().name;
    plain_ = Load(KERNELS_default);
    other_ = GetParam().path == nullptr ? tfhybrid_test_kernels() : Load(GetParam().path);
  }

  // Runs `kernel` (kernels, output) of both builds on an output of `floats` for all lengths of a
  // row and several alignments.
  template <typename Kernel>
  void ExpectEqual(int64_t rows, const Kernel& kernel) {
    for (int64_t dim = 1; dim <= kMaxDim; ++dim) {
      for (const int64_t offset : {0, 1, 3, 5, 8}) {
        SCOPED_TRACE("dim " + std::to_string(dim) + ", offset " + std::to_string(offset));
        Floats floats(static_cast<uint64_t>(dim * 100 + offset));
        const std::vector<float> before = floats.Row(rows * dim, offset);
        const std::vector<float> input = floats.Row(4 * dim, offset);
        std::vector<float> wanted = before, received = before;
        kernel(plain_, dim, input.data() + offset, wanted.data() + offset);
        kernel(other_, dim, input.data() + offset, received.data() + offset);
        ASSERT_TRUE(SameBits(wanted, received));
        for (int64_t i = 0; i < offset; ++i) {
          ASSERT_EQ(kGuard, received[static_cast<size_t>(i)]);
          ASSERT_EQ(kGuard, received[received.size() - 1 - static_cast<size_t>(i)]);
        }
      }
    }
  }

  void ExpectSameUpdates(OptimizerConfig config) {
    for (const float epsilon : {1e-7f, 0.0f}) {
      config.epsilon = epsilon;
      const OptimizerStep step = PrepareStep(config, 0.01f, 3);
      const float scale = 1.0f / 3.0f;
      ExpectEqual(4, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
        kernels.apply_row(step, dim, in, scale, out, out + dim);
      });
    }
  }

  void ExpectSameInitialRows(const Initializer& initializer) {
    constexpr int64_t kKeys = 20;
    ExpectEqual(kKeys, [&](const Kernels& kernels, int64_t dim, const float*, float* out) {
      for (int64_t i = 0; i < kKeys; ++i) {
        kernels.initialize_row(initializer, 42, dim * kKeys + i, Span<float>(out + i * dim, dim));
      }
    });
  }

  Kernels plain_, other_;
};

INSTANTIATE_TEST_SUITE_P(, KernelsTest, testing::ValuesIn(Builds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(KernelsTest, Optimizers) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    SCOPED_TRACE(optimizer.name);
    ExpectSameUpdates(optimizer.config);
  }
}

TEST_P(KernelsTest, PenaltiesClippingAndDecay) {
  for (const NamedOptimizer& optimizer : AllOptimizers()) {
    OptimizerConfig config = optimizer.config;
    if (StateFloats(config, 1) > 2) continue;  // the scratch is where the third would be
    config.penalty_l1 = 0.1;
    config.penalty_l2 = 0.2;
    RowUpdate update = {PrepareStep(config, 0.01f, 3)};
    update.clip_value = 0.7f;
    update.clip_factor = 0.3f;
    update.decay_before = 0.9f;
    update.decay_after = 0.8f;
    SCOPED_TRACE(optimizer.name);
    ExpectEqual(4, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
      kernels.update_row(update, dim, in, 1.0f / 3.0f, out, out + dim, out + 3 * dim);
    });
  }
}

TEST_P(KernelsTest, Squares) {
  ExpectEqual(2, [](const Kernels& kernels, int64_t dim, const float* in, float* out) {
    double squares = kernels.squares(in, dim);
    // Of two NaNs that are added, either may be the sum.
    if (std::isnan(squares)) squares = -1.0;
    std::memcpy(out, &squares, sizeof(squares));
  });
}

TEST_P(KernelsTest, Uniform) {
  ExpectSameInitialRows({InitializerKind::kUniform, -0.05, 0.05});
  ExpectSameInitialRows({InitializerKind::kUniform, -1e38, 1e38});
}

TEST_P(KernelsTest, Normal) { ExpectSameInitialRows({InitializerKind::kNormal, 0.1, 0.3}); }

TEST_P(KernelsTest, TruncatedNormal) {
  ExpectSameInitialRows({InitializerKind::kTruncatedNormal, 0.1, 0.3});
}

TEST_P(KernelsTest, SumOfGradients) {
  for (int64_t count = 1; count <= 4; ++count) {
    ExpectEqual(1, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
      kernels.sum_gradients(in, count, dim, out);
    });
  }
}

TEST_P(KernelsTest, SumOverRanks) {
  for (int64_t count = 1; count <= 4; ++count) {
    ExpectEqual(1, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
      kernels.merge_ranks(in, count, dim, out);
    });
  }
}

TEST_P(KernelsTest, Bags) {
  for (int64_t count = 1; count <= 4; ++count) {
    ExpectEqual(1, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
      kernels.combine_bag(in, count, dim, out);
    });
    ExpectEqual(1, [&](const Kernels& kernels, int64_t dim, const float* in, float* out) {
      kernels.spread_gradient(in, count, dim, out);
    });
  }
}

}  // namespace
}  // namespace tfhybrid::kernels_test
