// Training without shared memory: what the tables of a job hold after so many updates, to the bit.
//
// A plan says what each rank brings in each update; everything follows from its seed, so that a
// process that did not take part knows what the others did.
#ifndef TFHYBRID_TESTS_NATIVE_SYNC_TRAINING_MODEL_H_
#define TFHYBRID_TESTS_NATIVE_SYNC_TRAINING_MODEL_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/store/table_writer.h"
#include "core/sync/update_journal.h"
#include "core/util/hash.h"

namespace tfhybrid {

struct PlannedTable {
  TableConfig config;
  OptimizerConfig optimizer;
  int64_t batch;  // keys that a rank brings, equal ones counted
  int64_t fresh;  // keys that come into reach with each update
};

struct TrainingPlan {
  std::vector<PlannedTable> tables;
  std::vector<int64_t> hosts;
  Reduction reduction = Reduction::kFrequency;
  Sync sync = Sync::kMailboxes;
  uint64_t seed = 1;

  // Another one for each table and each update.
  float Rate(size_t table, uint64_t version) const {
    return 0.1f / static_cast<float>(1 + table) / static_cast<float>(1 + version % 7);
  }
};

// What a rank brings for a table. Equal keys are not summed yet.
struct Batch {
  std::vector<int64_t> keys;
  std::vector<float> gradients;
};

// The key that comes `number`-th into reach: small ones, negative ones, and such as need all bits.
inline int64_t PlannedKey(uint64_t number) {
  if (number % 3 == 0) return static_cast<int64_t>(Mix64(number));
  return number % 3 == 1 ? static_cast<int64_t>(number) : -static_cast<int64_t>(number);
}

inline Batch BatchOf(const TrainingPlan& plan, uint64_t version, size_t rank, size_t table) {
  const PlannedTable& planned = plan.tables[table];
  uint64_t random = Mix64(Mix64(Mix64(plan.seed + version) + rank) + table);
  Batch batch;
  // Now and then a rank brings nothing.
  if (random % 16 == 0) return batch;
  const uint64_t reach = static_cast<uint64_t>(planned.fresh) * version + 1;
  for (int64_t i = 0; i < planned.batch; ++i) {
    batch.keys.push_back(PlannedKey(Mix64(random += kGoldenGamma) % reach));
  }
  const int64_t floats = planned.batch * planned.config.dim;
  batch.gradients.reserve(static_cast<size_t>(floats));
  for (int64_t i = 0; i < floats; ++i) {
    const auto bits = static_cast<uint32_t>(Mix64(random += kGoldenGamma) >> 40);
    batch.gradients.push_back(static_cast<float>(bits) * 0x1p-23f - 1.0f);
  }
  return batch;
}

class TrainingModel {
 public:
  using Rows = std::unordered_map<int64_t, std::vector<float>>;  // embedding, then state

  explicit TrainingModel(TrainingPlan plan)
      : plan_(std::move(plan)), tables_(plan_.tables.size()) {}

  const TrainingPlan& plan() const { return plan_; }
  uint64_t version() const { return version_; }
  const Rows& rows(size_t table) const { return tables_[table]; }

  // What a key without a row has, too.
  std::vector<float> FreshRow(size_t table, int64_t key) const {
    const PlannedTable& planned = plan_.tables[table];
    const TableConfig& config = planned.config;
    const auto name_length = static_cast<int64_t>(config.name.size());
    std::vector<float> row(
        static_cast<size_t>(config.dim + StateFloats(planned.optimizer, config.dim)));
    InitializeRow(config.initializer, TableSeed(config.job_seed, config.name.data(), name_length),
                  key, Span<float>(row.data(), config.dim));
    InitializeState(planned.optimizer, config.dim, row.data() + config.dim);
    return row;
  }

  void AdvanceTo(uint64_t version) {
    while (version_ < version) {
      ++version_;
      for (size_t table = 0; table < tables_.size(); ++table) Update(table);
    }
  }

 private:
  // The sum of a key's gradients over the ranks: within each host first.
  struct Sum {
    int64_t host;
    uint32_t count;
    std::vector<float> of_host;
    std::vector<float> of_earlier_hosts;  // empty on the first
  };
  using Sums = std::unordered_map<int64_t, Sum>;

  static void Add(const float* gradient, std::vector<float>* sum) {
    for (float& element : *sum) element += *gradient++;
  }

  static std::vector<float> Total(const Sum& sum) {
    if (sum.of_earlier_hosts.empty()) return sum.of_host;
    std::vector<float> total = sum.of_earlier_hosts;
    Add(sum.of_host.data(), &total);
    return total;
  }

  void AddRank(const Batch& batch, int64_t host, int64_t dim, Sums* sums) const {
    std::unordered_map<int64_t, std::vector<float>> of_rank;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      const float* gradient = batch.gradients.data() + static_cast<int64_t>(i) * dim;
      const auto found = of_rank.find(batch.keys[i]);
      if (found != of_rank.end()) {
        Add(gradient, &found->second);
      } else {
        of_rank.emplace(batch.keys[i], std::vector<float>(gradient, gradient + dim));
      }
    }
    for (auto& [key, gradient] : of_rank) {
      const auto [at, created] = sums->try_emplace(key, Sum{host, 1, gradient, {}});
      if (created) continue;
      Sum& sum = at->second;
      ++sum.count;
      if (sum.host == host) {
        Add(gradient.data(), &sum.of_host);
      } else {
        sum.of_earlier_hosts = Total(sum);
        sum.of_host = gradient;
        sum.host = host;
      }
    }
  }

  float Scale(uint32_t count) const {
    if (plan_.reduction == Reduction::kSum) return 1.0f;
    const bool mean = plan_.reduction == Reduction::kMean;
    return 1.0f / static_cast<float>(mean ? plan_.hosts.size() : count);
  }

  void Update(size_t table) {
    const PlannedTable& planned = plan_.tables[table];
    const int64_t dim = planned.config.dim;
    Sums sums;
    for (size_t rank = 0; rank < plan_.hosts.size(); ++rank) {
      AddRank(BatchOf(plan_, version_, rank, table), plan_.hosts[rank], dim, &sums);
    }
    const OptimizerStep step =
        PrepareStep(planned.optimizer, plan_.Rate(table, version_), static_cast<int64_t>(version_));
    for (const auto& [key, sum] : sums) {
      const auto found = tables_[table].find(key);
      std::vector<float>& row = found != tables_[table].end()
                                    ? found->second
                                    : tables_[table][key] = FreshRow(table, key);
      ApplyRow(step, dim, Total(sum).data(), Scale(sum.count), row.data(), row.data() + dim);
    }
  }

  const TrainingPlan plan_;
  std::vector<Rows> tables_;
  uint64_t version_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_SYNC_TRAINING_MODEL_H_
