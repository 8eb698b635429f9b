// Does a lookup gain by looking each distinct key up once? Behind
// docs/design/0001-lookup-without-deduplication.md.
//
// 26 tables of 153,847 rows x 16, 4096 keys of each a round: read directly, and read as distinct
// keys that are then copied to where they occur. Interleaved, one thread, median of the rounds.
// Build and run from the repository's root:
//   g++ -std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -I custom_ops \
//     benchmarks/native/deduplication.cc tfhybrid/ops/libtfhybrid_core.so
//     -Wl,-rpath,$PWD/tfhybrid/ops \ -o build/deduplication && build/deduplication
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/store/store.h"

namespace {

using tfhybrid::Span;

constexpr int kTables = 26;
constexpr int64_t kRows = 153847;
constexpr int64_t kKeys = 4096;
constexpr int64_t kDim = 16;
constexpr int kRounds = 60;

// Keys drawn with probability proportional to 1 / rank^exponent; exponent 0 is uniform.
class Zipf {
 public:
  explicit Zipf(double exponent) {
    double total = 0;
    for (int64_t rank = 1; rank <= kRows; ++rank) {
      total += std::pow(static_cast<double>(rank), -exponent);
      cumulative_.push_back(total);
    }
  }
  int64_t operator()(std::mt19937_64& random) const {
    const double u = std::uniform_real_distribution<double>(0, cumulative_.back())(random);
    return std::upper_bound(cumulative_.begin(), cumulative_.end(), u) - cumulative_.begin();
  }

 private:
  std::vector<double> cumulative_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <typename Work>
double NanosecondsPerKey(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / (kTables * kKeys);
}

// The backward pass could have the numbers from here, and would make them no more.
void Number(Span<const int64_t> keys, tfhybrid::UniqueKeys* unique, int64_t* numbers) {
  unique->Reset(kKeys);
  for (int64_t i = 0; i < kKeys; ++i) numbers[i] = unique->Number(keys[i]);
}

int64_t LookupDistinct(tfhybrid::TableReader* reader, Span<const int64_t> keys, float* out) {
  static tfhybrid::UniqueKeys unique;
  static std::vector<int64_t> numbers(kKeys);
  static std::vector<float> rows(kKeys * kDim);
  Number(keys, &unique, numbers.data());
  if (!reader->Lookup(unique.keys(), rows.data()).ok()) std::abort();
  for (int64_t i = 0; i < kKeys; ++i) {
    std::memcpy(out + i * kDim, rows.data() + numbers[i] * kDim, kDim * sizeof(float));
  }
  return unique.size();
}

void Compare(const std::vector<std::shared_ptr<tfhybrid::OpenTable>>& tables, double exponent) {
  const Zipf zipf(exponent);
  std::mt19937_64 random(7);
  std::vector<float> out(kKeys * kDim);
  std::vector<double> direct, distinct, numbering;
  tfhybrid::UniqueKeys unique;
  std::vector<int64_t> numbers(kKeys);
  int64_t distinct_keys = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> keys(kTables * kKeys);
    for (int64_t& key : keys) key = zipf(random);
    const auto keys_of = [&](int t) { return Span<const int64_t>(keys.data() + t * kKeys, kKeys); };
    direct.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) {
        if (!tables[t]->reader->Lookup(keys_of(t), out.data()).ok()) std::abort();
      }
    }));
    distinct.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) {
        distinct_keys += LookupDistinct(tables[t]->reader.get(), keys_of(t), out.data());
      }
    }));
    numbering.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) Number(keys_of(t), &unique, numbers.data());
    }));
  }
  std::printf(
      "exponent %.2f: %2.0f %% distinct, direct %.1f ns a key, distinct first %.1f, of which "
      "numbering %.1f\n",
      exponent, 100.0 * distinct_keys / (kRounds * kTables * kKeys), Median(direct),
      Median(distinct), Median(numbering));
}

}  // namespace

int main() {
  std::vector<std::string> reclaimed;
  auto store = tfhybrid::Store::Create(
      {"/dev/shm", "deduplication-" + std::to_string(getpid()), 0, "benchmark", 1}, &reclaimed);
  if (!store.ok()) std::abort();
  std::vector<int64_t> keys(kRows);
  for (int64_t i = 0; i < kRows; ++i) keys[i] = i;
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(3));
  const std::vector<float> rows(kRows * kDim, 1.0f);
  std::vector<std::shared_ptr<tfhybrid::OpenTable>> tables;
  for (int t = 0; t < kTables; ++t) {
    auto table = store.value()->OpenNamed({"table" + std::to_string(t), kDim, {}, 0}, 0);
    if (!table.ok()) std::abort();
    const Span<const int64_t> all(keys.data(), kRows);
    if (!table.value()
             ->writer->WriteRows(all, rows.data(), nullptr, nullptr, tfhybrid::RunInline)
             .ok()) {
      std::abort();
    }
    tables.push_back(table.Take());
  }
  for (const double exponent : {0.0, 0.75, 1.2}) Compare(tables, exponent);
  return 0;
}
