// Does a lookup gain by finding the row of each distinct key once? Behind
// docs/design/0001-keys-by-number.md.
//
// 26 tables of 153,847 rows x 16, 4096 keys of each a round, whose embeddings lie side by side as a
// model's first layer wants them. Every key looked up; and keys numbered, the rows of distinct keys
// found, and each copied to where it occurs. Interleaved, one thread, median of the rounds.
// Build and run from the repository's root:
//   g++ -std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -I custom_ops \
//     benchmarks/step/native/deduplication.cc tfhybrid/ops/libtfhybrid_core.so
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
#include "core/store/table_loader.h"

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

void Compare(const std::vector<std::shared_ptr<tfhybrid::OpenTable>>& tables, double exponent) {
  const Zipf zipf(exponent);
  std::mt19937_64 random(7);
  std::vector<float> out(kTables * kKeys * kDim);
  std::vector<double> direct, numbering, by_number;
  std::vector<tfhybrid::UniqueKeys> unique(kTables);
  std::vector<uint32_t> numbers(kTables * kKeys);
  int64_t distinct_keys = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> keys(kTables * kKeys);
    for (int64_t& key : keys) key = zipf(random);
    const auto keys_of = [&](int t) { return Span<const int64_t>(keys.data() + t * kKeys, kKeys); };
    const auto to = [&](int t) {
      return tfhybrid::RowCursor<float>(out.data() + t * kDim, {kDim, 1, kTables * kDim}, 0);
    };
    direct.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) {
        if (!tables[t]->reader->Lookup(keys_of(t), to(t)).ok()) std::abort();
      }
    }));
    numbering.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) {
        unique[t].Reset(kKeys);
        unique[t].Number(keys_of(t), numbers.data() + t * kKeys);
        distinct_keys += unique[t].size();
      }
    }));
    by_number.push_back(NanosecondsPerKey([&] {
      for (int t = 0; t < kTables; ++t) {
        const auto found = tables[t]->reader->Find(unique[t].keys(), tfhybrid::RunInline);
        if (!found.ok()) std::abort();
        const tfhybrid::LookupKeys all = {keys_of(t), numbers.data() + t * kKeys, &found.value()};
        if (!tables[t]->reader->Lookup(all, to(t)).ok()) std::abort();
      }
    }));
  }
  std::printf(
      "exponent %.2f: %2.0f %% distinct, every key %.1f ns a key, by number %.1f, numbering %.1f\n",
      exponent, 100.0 * distinct_keys / (kRounds * kTables * kKeys), Median(direct),
      Median(by_number), Median(numbering));
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
             TableLoader.WriteRows(all, rows.data(), nullptr, nullptr, tfhybrid::RunInline)
                 .ok()) {
      std::abort();
    }
    tables.push_back(table.Take());
  }
  for (const double exponent : {0.0, 0.75, 1.2}) Compare(tables, exponent);
  return 0;
}
