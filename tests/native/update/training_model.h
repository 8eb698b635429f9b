// Training without shared memory: what the tables of a job hold after so many updates, to the bit.
//
// A plan says what each rank brings in each update; everything follows from its seed, so that a
// process that did not take part knows what the others did.
#ifndef TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_MODEL_H_
#define TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_MODEL_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/row_update.h"
#include "core/compute/square_sum.h"
#include "core/store/table_writer.h"
#include "core/update/update_journal.h"
#include "core/util/hash.h"
#include "update/policy_model.h"

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
  Exchange exchange = Exchange::kLeaders;
  uint64_t seed = 1;
  Clipping clipping = Clipping::kNone;
  float clip_limit = 0.0f;
  bool sharded = false;  // whether what is staged is this host's own

  // Another one for each table and each update.
  float Rate(size_t table, uint64_t version) const {
    return 0.1f / static_cast<float>(1 + table) / static_cast<float>(1 + version % 7);
  }
  // Of the rank's batch; of all ranks together not the latest in every update.
  int64_t EventTime(uint64_t version, size_t rank) const {
    if ((version + rank) % 3 == 0) return kNoTime;
    return static_cast<int64_t>(10 * version + Mix64(version + rank) % 30) - 100;
  }
  double DenseSquares(uint64_t version) const { return 0.25 * static_cast<double>(version); }
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
      : plan_(std::move(plan)), tables_(plan_.tables.size()), decays_(plan_.tables.size(), 1.0) {
    for (const PlannedTable& table : plan_.tables) policies_.emplace_back(table.config.policy);
  }

  const TrainingPlan& plan() const { return plan_; }
  uint64_t version() const { return version_; }
  const Rows& rows(size_t table) const { return tables_[table]; }
  const PolicyModel& policy(size_t table) const { return policies_[table]; }
  Moment now() const { return {version_, time_}; }

  // What a row's embedding is worth.
  std::vector<float> Embedding(size_t table, const std::vector<float>& row) const {
    std::vector<float> embedding(row.begin(), row.begin() + plan_.tables[table].config.dim);
    for (float& value : embedding) value *= static_cast<float>(decays_[table]);
    return embedding;
  }

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
      Update();
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

  void Update() {
    std::vector<Sums> sums(tables_.size());
    std::vector<SquareSum> squares(tables_.size());
    SquareSum all_squares;
    for (size_t rank = 0; rank < plan_.hosts.size(); ++rank) {
      time_ = std::max(time_, plan_.EventTime(version_, rank));
    }
    for (size_t table = 0; table < tables_.size(); ++table) {
      for (size_t rank = 0; rank < plan_.hosts.size(); ++rank) {
        AddRank(BatchOf(plan_, version_, rank, table), plan_.hosts[rank],
                plan_.tables[table].config.dim, &sums[table]);
      }
      KeepUpdated(table, &sums[table]);
      AddUntouched(table, &sums[table]);
      squares[table] = Squared(table, sums[table]);
      all_squares.Add(squares[table]);
    }
    for (size_t table = 0; table < tables_.size(); ++table) {
      RowUpdate update = UpdateOf(table);
      if (plan_.clipping == Clipping::kNorm) {
        update.clip_factor = ClipFactor(squares[table].Total(), plan_.clip_limit);
      } else if (plan_.clipping == Clipping::kGlobalNorm) {
        update.clip_factor =
            ClipFactor(all_squares.Total() + plan_.DenseSquares(version_), plan_.clip_limit);
      }
      Update(table, update, sums[table]);
      decays_[table] = DecayAfter(table);
      Evict(table);
    }
  }

  // Drops the gradients of keys that must wait for their rows.
  void KeepUpdated(size_t table, Sums* sums) {
    std::set<int64_t> keys;
    for (const auto& [key, sum] : *sums) keys.insert(key);
    const std::set<int64_t> updated = policies_[table].Begin(keys, now());
    for (const int64_t key : keys) {
      if (updated.count(key) == 0) sums->erase(key);
    }
  }

  // Where every row is updated, those too of which no rank has the key.
  void AddUntouched(size_t table, Sums* sums) const {
    const PlannedTable& planned = plan_.tables[table];
    if ((planned.optimizer.flags & kEveryRow) == 0) return;
    const std::vector<float> zeros(static_cast<size_t>(planned.config.dim), 0.0f);
    for (const auto& [key, row] : tables_[table]) sums->try_emplace(key, Sum{0, 1, zeros, {}});
  }

  void Evict(size_t table) {
    const auto norm = [&](int64_t key) {
      double squares = 0.0;
      for (const float value : Embedding(table, tables_[table].at(key))) {
        squares += static_cast<double>(value) * static_cast<double>(value);
      }
      return std::sqrt(squares);
    };
    for (const int64_t key : policies_[table].End(now(), norm)) tables_[table].erase(key);
  }

  double DecayAfter(size_t table) const {
    const double rate = plan_.Rate(table, version_);
    return decays_[table] * (1.0 - rate * plan_.tables[table].optimizer.weight_decay);
  }

  RowUpdate UpdateOf(size_t table) const {
    RowUpdate update = {PrepareStep(plan_.tables[table].optimizer, plan_.Rate(table, version_),
                                    static_cast<int64_t>(version_))};
    if (plan_.clipping == Clipping::kValue) update.clip_value = plan_.clip_limit;
    update.decay_before = static_cast<float>(decays_[table]);
    update.decay_after = static_cast<float>(DecayAfter(table));
    return update;
  }

  SquareSum Squared(size_t table, const Sums& sums) const {
    const int64_t dim = plan_.tables[table].config.dim;
    const RowUpdate update = UpdateOf(table);
    SquareSum squares;
    std::vector<float> gradient(static_cast<size_t>(dim));
    for (const auto& [key, sum] : sums) {
      const auto found = tables_[table].find(key);
      const std::vector<float> row =
          found != tables_[table].end() ? found->second : FreshRow(table, key);
      RowGradient(update, dim, Total(sum).data(), Scale(sum.count), row.data(), gradient.data());
      squares.Add(tfhybrid::Squares(gradient.data(), dim));
    }
    return squares;
  }

  void Update(size_t table, const RowUpdate& update, const Sums& sums) {
    const int64_t dim = plan_.tables[table].config.dim;
    std::vector<float> scratch(static_cast<size_t>(dim));
    for (const auto& [key, sum] : sums) {
      const auto found = tables_[table].find(key);
      std::vector<float>& row = found != tables_[table].end()
                                    ? found->second
                                    : tables_[table][key] = FreshRow(table, key);
      UpdateRow(update, dim, Total(sum).data(), Scale(sum.count), row.data(), row.data() + dim,
                scratch.data());
    }
  }

  const TrainingPlan plan_;
  std::vector<Rows> tables_;    // embeddings as they lie
  std::vector<double> decays_;  // what they lie divided by
  std::vector<PolicyModel> policies_;
  uint64_t version_ = 0;
  int64_t time_ = kNoTime;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_MODEL_H_
