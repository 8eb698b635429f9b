// A job that is killed at a chosen point of its training, and recovered.
#ifndef TFHYBRID_TESTS_NATIVE_UPDATE_RECOVERY_FIXTURE_H_
#define TFHYBRID_TESTS_NATIVE_UPDATE_RECOVERY_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/util/fault_point.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"
#include "update/training_job.h"

namespace tfhybrid {

// Three tables, one of each optimizer, of two ranks of one host.
inline TrainingPlan SmallPlan() {
  TrainingPlan plan;
  plan.tables = {{ConfigOf("sgd", 1), OptimizerOf(OptimizerKind::kSgd), 6, 4},
                 {ConfigOf("adagrad", 3), OptimizerOf(OptimizerKind::kAdagrad), 6, 5},
                 {ConfigOf("adam", 16), OptimizerOf(OptimizerKind::kAdam), 8, 6}};
  plan.hosts = {0, 0};
  return plan;
}

// With all that comes beside an optimizer: decay, penalties, one norm of all gradients, and updates
// of the rows that a step does not touch.
inline TrainingPlan RegularizedPlan() {
  TrainingPlan plan = SmallPlan();
  plan.tables[0].optimizer.weight_decay = 0.5;
  plan.tables[1].optimizer.penalty_l1 = 0.01;
  plan.tables[1].optimizer.penalty_l2 = 0.1;
  plan.tables[2].optimizer.weight_decay = 0.125;
  plan.tables[2].optimizer.penalty_l2 = 0.1;
  plan.tables[2].optimizer.flags |= kEveryRow;
  plan.clipping = Clipping::kGlobalNorm;
  plan.clip_limit = 0.5f;
  return plan;
}

// Tables that forget: one by steps and frequency, one by event time and norm, one that has too many
// rows; in two of them keys wait for admission.
inline TrainingPlan ForgettingPlan() {
  TrainingPlan plan = SmallPlan();
  for (PlannedTable& table : plan.tables) {
    table.config.policy.kind = PolicyKind::kRows;
    table.config.policy.slices_log2 = 1;
    table.batch = 12;
    table.fresh = 3;
  }
  RowPolicy* const policies[] = {&plan.tables[0].config.policy, &plan.tables[1].config.policy,
                                 &plan.tables[2].config.policy};
  policies[0]->unseen_steps = 5;
  policies[0]->half_life = 2;
  policies[0]->min_frequency = 1.0;
  policies[0]->admission = 2;
  policies[0]->waiting_steps = 3;
  policies[1]->unseen_time = 40;
  policies[1]->min_norm = 0.06;
  policies[1]->admission = 2;
  policies[2]->max_rows = 14;
  policies[2]->frequent_stay = 1;
  plan.tables[1].optimizer.weight_decay = 0.125;
  return plan;
}

// Tables that lie in files, beside one that does not; in one of them keys wait for admission, and
// lose their rows again.
inline TrainingPlan FilesPlan(const std::string& files) {
  TrainingPlan plan = SmallPlan();
  for (size_t table = 0; table < 3; ++table) {
    plan.tables[table].fresh = 6;
    if (table == 1) continue;
    plan.tables[table].config.files = files;
    const int64_t floats = plan.tables[table].config.dim * (table == 0 ? 1 : 3);
    plan.tables[table].config.cache_bytes = 2 * plan.tables[table].batch * (16 + 4 * floats);
  }
  plan.tables[2].config.policy.kind = PolicyKind::kRows;
  plan.tables[2].config.policy.slices_log2 = 1;
  plan.tables[2].config.policy.admission = 2;
  plan.tables[2].config.policy.waiting_steps = 5;
  plan.tables[2].config.policy.unseen_steps = 4;
  plan.tables[2].config.policy.max_rows = 16;
  plan.tables[0].optimizer.weight_decay = 0.125;
  return plan;
}

// What the tables hold before an update, after it, and after the one that follows.
struct Models {
  Models(const TrainingPlan& plan, uint64_t version) : before(plan), after(plan), next(plan) {
    before.AdvanceTo(version);
    after.AdvanceTo(version + 1);
    next.AdvanceTo(version + 2);
  }
  TrainingModel before, after, next;
};

class RecoveryTest : public testing::Test {
 protected:
  using Step = std::function<void(TrainingJob*)>;

  // A child trains up to `version`, prepares, and then runs `body`, in which it dies at the
  // `point`-th fault point. Whether there were so many.
  bool KilledAt(
      int64_t point, const TrainingPlan& plan, uint64_t version, const Step& body,
      const Step& prepare = [](TrainingJob*) {}) {
    std::filesystem::remove_all(Directory());
    return KilledInChild([&] {
      auto job = TrainingJob::Create(plan, directory_.path());
      ASSERT_OK(job);
      for (uint64_t v = 1; v <= version; ++v) ASSERT_OK(job.value()->Train(v, RunInline));
      prepare(job.value().get());
      ArmFaultPoint(point);
      body(job.value().get());
      // Left behind, as if it had been killed.
      job.Take().release();
    });
  }

  // The same, dying in the update that follows `version`.
  bool KilledInUpdate(int64_t point, const TrainingPlan& plan, uint64_t version) {
    return KilledAt(point, plan, version,
                    [&](TrainingJob* job) { EXPECT_OK(job->Train(version + 1, RunInline)); });
  }

  Result<std::unique_ptr<Store>> Recover() const {
    return RecoverAlone(TrainingStore(directory_.path(), 0), RunInline);
  }

  // Recovers, expects all tables as before the update or all as after it, and that training works
  // from there. Returns the version.
  uint64_t ExpectWhole(const Models& models) const {
    auto recovered = Recover();
    EXPECT_OK(recovered);
    if (!recovered.ok()) return 0;
    std::shared_ptr<Store> store = recovered.Take();
    const TrainingPlan& plan = models.before.plan();
    const uint64_t version = VersionOf(*store, plan);
    const bool updated = version == models.after.version();
    const TrainingModel& model = updated ? models.after : models.before;
    EXPECT_EQ("", Difference(*store, model, updated));
    ExpectInitialValues(*store, model);
    for (const auto& [name, table] : store->tables()) {
      EXPECT_TRUE(table->reader->WaitForQuiet(0)) << name << " changes still";
    }
    auto job = TrainingJob::GoOn(plan, directory_.path(), std::move(store));
    EXPECT_OK(job);
    if (!job.ok()) return version;
    EXPECT_OK(job.value()->Train(version + 1, RunInline));
    for (size_t table = 0; table < plan.tables.size(); ++table) {
      const auto trained = job.value()->store()->Find(plan.tables[table].config.name);
      EXPECT_EQ("", TableDifference(*trained, updated ? models.next : models.after, table));
    }
    return version;
  }

  static uint64_t VersionOf(const Store& store, const TrainingPlan& plan) {
    return store.Find(plan.tables.front().config.name)->reader->version();
  }

  std::string Directory() const { return TrainingDirectory(directory_.path()); }

  TemporaryDirectory directory_;

 private:
  static void ExpectInitialValues(const Store& store, const TrainingModel& model) {
    for (size_t table = 0; table < model.plan().tables.size(); ++table) {
      TableReader* reader = store.Find(model.plan().tables[table].config.name)->reader.get();
      for (uint64_t number = 0; number < 50; ++number) {
        const int64_t key = PlannedKey(number);
        if (model.rows(table).count(key) > 0) continue;
        const std::vector<float> wanted = model.Embedding(table, model.FreshRow(table, key));
        std::vector<float> read(wanted.size());
        EXPECT_OK(reader->Lookup(Span<const int64_t>(&key, 1), read.data()));
        EXPECT_EQ(wanted, read) << key;
      }
    }
  }
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_UPDATE_RECOVERY_FIXTURE_H_
