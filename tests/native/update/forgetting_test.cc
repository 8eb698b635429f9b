// Training in which keys wait for admission and rows are evicted, beside the plain model of it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "update/recovery_fixture.h"

namespace tfhybrid::forgetting_test {
namespace {

class ForgettingTest : public RecoveryTest {
 protected:
  // Trains beside the model; looks at all tables after every `stride`-th update.
  void Train(const TrainingPlan& plan, uint64_t versions, uint64_t stride) {
    auto created = TrainingJob::Create(plan, directory_.path());
    ASSERT_OK(created);
    job_ = created.Take();
    model_ = std::make_unique<TrainingModel>(plan);
    for (uint64_t version = 1; version <= versions; ++version) {
      SCOPED_TRACE("version " + std::to_string(version));
      ASSERT_OK(job_->Train(version, RunInline));
      model_->AdvanceTo(version);
      if (version % stride != 0) continue;
      for (size_t table = 0; table < plan.tables.size(); ++table) {
        ASSERT_EQ("", TableDifference(Table(table), *model_, table));
      }
    }
  }
  const OpenTable& Table(size_t table) const {
    return *job_->store()->Find(model_->plan().tables[table].config.name);
  }

  std::unique_ptr<TrainingJob> job_;
  std::unique_ptr<TrainingModel> model_;
};

TEST_F(ForgettingTest, EveryUpdateIsThatOfTheModel) {
  const TrainingPlan plan = ForgettingPlan();
  Train(plan, 150, 1);
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    EXPECT_GT(Table(table).reader->Stats().evicted, 30) << table;
    EXPECT_GT(Table(table).reader->Stats().rows, 0) << table;
  }
}

TEST_F(ForgettingTest, EachRuleAlone) {
  using Change = std::function<void(RowPolicy*)>;
  const std::vector<Change> rules = {
      [](RowPolicy* policy) { policy->unseen_steps = 4; },
      [](RowPolicy* policy) { policy->unseen_time = 35; },
      [](RowPolicy* policy) {
        policy->half_life = 3;
        policy->min_frequency = 0.6;
      },
      [](RowPolicy* policy) { policy->min_norm = 0.05; },
      [](RowPolicy* policy) { policy->max_rows = 25; },
      [](RowPolicy* policy) {
        policy->max_rows = 25;
        policy->frequent_stay = 1;
      },
      [](RowPolicy* policy) { policy->admission = 3; },
      [](RowPolicy* policy) {
        policy->admission = 2;
        policy->waiting_steps = 4;
      },
  };
  for (size_t rule = 0; rule < rules.size(); ++rule) {
    SCOPED_TRACE("rule " + std::to_string(rule));
    TrainingPlan plan = ForgettingPlan();
    for (uint32_t table = 0; table < plan.tables.size(); ++table) {
      RowPolicy policy;
      policy.kind = PolicyKind::kRows;
      policy.slices_log2 = table;
      rules[rule](&policy);
      plan.tables[table].config.policy = policy;
    }
    job_ = nullptr;
    Train(plan, 40, 1);
    if (HasFatalFailure()) return;
  }
}

TrainingPlan LargePlan() {
  TrainingPlan plan = ForgettingPlan();
  plan.tables.resize(2);
  for (PlannedTable& table : plan.tables) {
    table.batch = 12000;
    table.fresh = 10000;
    table.config.policy = {};
    table.config.policy.kind = PolicyKind::kRows;
    table.config.policy.slices_log2 = 3;
  }
  plan.tables[0].config.policy.unseen_steps = 12;
  plan.tables[1].config.policy.half_life = 4;
  plan.tables[1].config.policy.min_frequency = 0.3;
  plan.tables[1].config.policy.admission = 2;
  return plan;
}

// Tables that grow by chunks and by indexes made in the background, while rows come and go.
TEST_F(ForgettingTest, LargeTablesThatGrow) {
  Train(LargePlan(), 24, 8);
  EXPECT_GT(Table(0).reader->Stats().evicted, 5000);
  EXPECT_GT(Table(1).reader->Stats().evicted, 1000);
}

TEST_F(ForgettingTest, LargeTablesInFilesThatGrow) {
  TrainingPlan plan = LargePlan();
  for (PlannedTable& table : plan.tables) {
    table.config.files = directory_.path();
    table.config.cache_bytes = 2 * 12000 * (16 + 3 * 4 * table.config.dim);
  }
  Train(plan, 24, 24);
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    const TableStats stats = Table(table).reader->Stats();
    EXPECT_GT(stats.evicted, 1000);
    EXPECT_GT(stats.written_rows, 1000);
    EXPECT_GT(stats.index_bytes, 1 << 20) << "made in the background";
  }
}

// What two hosts write into one checkpoint are parts of the same rows in the same order.
TEST_F(ForgettingTest, RowsLieTheSameInEveryReplica) {
  TrainingPlan plan = ForgettingPlan();
  Train(plan, 60, 60);
  std::vector<std::vector<int64_t>> keys;
  const auto note = [&] {
    for (size_t table = 0; table < plan.tables.size(); ++table) {
      const TableWriter& writer = *Table(table).writer;
      keys.emplace_back();
      for (int64_t row = 0; row < writer.rows(); ++row)
        keys.back().push_back(writer.chunks().KeyOf(row));
    }
  };
  note();
  // Its index has another size, so that slices are met in another order.
  job_ = nullptr;
  auto created = TrainingJob::Create(plan, directory_.path());
  ASSERT_OK(created);
  job_ = created.Take();
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    ASSERT_OK(Table(table).writer->Reserve(5000));
  }
  for (uint64_t version = 1; version <= 60; ++version) ASSERT_OK(job_->Train(version, RunInline));
  note();
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    EXPECT_EQ(keys[table], keys[table + plan.tables.size()]);
  }
}

// A table whose keys come and go needs no larger index than one that stands still.
TEST_F(ForgettingTest, FreedSlotsAreUsedAgain) {
  TrainingPlan plan = ForgettingPlan();
  plan.tables.resize(1);
  plan.tables[0].batch = 400;
  plan.tables[0].fresh = 400;
  plan.tables[0].config.policy = {};
  plan.tables[0].config.policy.kind = PolicyKind::kRows;
  plan.tables[0].config.policy.max_rows = 2000;
  Train(plan, 100, 20);
  EXPECT_GT(Table(0).reader->Stats().evicted, 20000);
  EXPECT_LE(Table(0).reader->Stats().index_slots, KeyIndex::SlotsFor(2 * 2800));
}

}  // namespace
}  // namespace tfhybrid::forgetting_test
