// Does an update gain if the optimizer's state lies beside its row? Behind
// docs/design/0053-state-apart-from-rows.md.
//
// Adagrad on 65,536 rows of 16, drawn from 4 million, in shared memory; and a lookup of as many
// other rows. Rows and states in two files, as a table has them, and in one, each state behind its
// row. Interleaved, one thread, median of the rounds.
// Build and run from the repository's root:
//   g++ -std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -I custom_ops \
//     benchmarks/step/native/state_beside_row.cc tfhybrid/ops/libtfhybrid_core.so \
//     -Wl,-rpath,$PWD/tfhybrid/ops -o build/state_beside_row && build/state_beside_row
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/compute/optimizer.h"
#include "core/util/prefetch.h"

namespace {

constexpr int64_t kRows = 4'000'000;
constexpr int64_t kTouched = 65'536;
constexpr int64_t kDim = 16;
constexpr int64_t kAhead = 12;  // rows whose cache lines are under way
constexpr int kRounds = 41;

// Zeros in shared memory, as a chunk of a table.
float* Map(int64_t floats) {
  const std::string path = "/dev/shm/state-beside-row-" + std::to_string(getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  const auto bytes = static_cast<size_t>(floats) * sizeof(float);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (at == MAP_FAILED) std::abort();
  unlink(path.c_str());
  close(file);
  return static_cast<float*>(at);
}

// Where the row of a number lies, and its state.
struct Layout {
  const char* name;
  float* rows;
  float* states;
  int64_t stride;  // in floats, of both

  float* Row(int64_t row) const { return rows + row * stride; }
  float* State(int64_t row) const { return states + row * stride; }
};

void Update(const Layout& layout, const std::vector<int64_t>& rows, const float* sums,
            const tfhybrid::OptimizerStep& step) {
  for (int64_t i = 0; i < kTouched; ++i) {
    const int64_t ahead = rows[static_cast<size_t>(std::min(i + kAhead, kTouched - 1))];
    tfhybrid::PrefetchFloats(layout.Row(ahead), kDim);
    tfhybrid::PrefetchFloats(layout.State(ahead), kDim);
    const int64_t row = rows[static_cast<size_t>(i)];
    tfhybrid::ApplyRow(step, kDim, sums + i * kDim, 0.5f, layout.Row(row), layout.State(row));
  }
}

void Lookup(const Layout& layout, const std::vector<int64_t>& rows, float* out) {
  for (int64_t i = 0; i < kTouched; ++i) {
    const int64_t ahead = rows[static_cast<size_t>(std::min(i + kAhead, kTouched - 1))];
    tfhybrid::PrefetchFloats(layout.Row(ahead), kDim);
    std::memcpy(out + i * kDim, layout.Row(rows[static_cast<size_t>(i)]), kDim * sizeof(float));
  }
}

template <typename Work>
double Milliseconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  float* const beside = Map(2 * kRows * kDim);
  const Layout layouts[] = {{"two files", Map(kRows * kDim), Map(kRows * kDim), kDim},
                            {"one file", beside, beside + kDim, 2 * kDim}};
  tfhybrid::OptimizerConfig adagrad;
  adagrad.kind = tfhybrid::OptimizerKind::kAdagrad;
  const tfhybrid::OptimizerStep step = tfhybrid::PrepareStep(adagrad, 0.05f, 1);
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int64_t> row(0, kRows - 1);
  std::vector<int64_t> touched(kTouched), looked_up(kTouched);
  const std::vector<float> sums(kTouched * kDim, 1e-3f);
  std::vector<float> out(kTouched * kDim);
  std::vector<double> updates[2], lookups[2];
  for (int round = 0; round < kRounds; ++round) {
    for (int64_t& each : touched) each = row(random);
    for (int64_t& each : looked_up) each = row(random);
    for (int i = 0; i < 2; ++i) {
      const size_t which = static_cast<size_t>((i + round) % 2);
      const Layout& layout = layouts[which];
      lookups[which].push_back(Milliseconds([&] { Lookup(layout, looked_up, out.data()); }));
      updates[which].push_back(Milliseconds([&] { Update(layout, touched, sums.data(), step); }));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    std::printf("%s: update %.2f ms, lookup %.2f ms\n", layouts[i].name, Median(updates[i]),
                Median(lookups[i]));
  }
  return 0;
}
