#include "core/update/recovery.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "update/recovery_fixture.h"

namespace tfhybrid::recovery_test {
namespace {

class KilledUpdateTest : public RecoveryTest {
 protected:
  // Kills the update after `version` at every `stride`-th point. Before some point it never was,
  // from there on it is whole.
  void KillEverywhere(const TrainingPlan& plan, uint64_t version, int64_t stride) {
    const Models models(plan, version);
    uint64_t last = version;
    int64_t kills = 0, finished = 0;
    for (int64_t point = 1; KilledInUpdate(point, plan, version); point += stride, ++kills) {
      SCOPED_TRACE("killed at point " + std::to_string(point));
      const uint64_t found = ExpectWhole(models);
      EXPECT_LE(last, found);
      last = found;
      finished += found == version + 1;
      if (HasFailure()) return;
    }
    EXPECT_EQ(version + 1, ExpectWhole(models));
    EXPECT_GT(finished, 0);
    EXPECT_LT(finished, kills);
    RecordProperty("kills", std::to_string(kills));
  }
};

TEST_F(KilledUpdateTest, FirstUpdateIsDoneOrNotAtEveryPoint) { KillEverywhere(SmallPlan(), 0, 1); }

TEST_F(KilledUpdateTest, LaterUpdateIsDoneOrNotAtEveryPoint) { KillEverywhere(SmallPlan(), 3, 1); }

TEST_F(KilledUpdateTest, MessagesInOneMailbox) {
  TrainingPlan plan = SmallPlan();
  plan.hosts = {0, 0, 1};
  plan.exchange = Exchange::kAllRanks;
  plan.reduction = Reduction::kMean;
  KillEverywhere(plan, 2, 1);
}

TEST_F(KilledUpdateTest, DecayPenaltiesAndClippingByGlobalNorm) {
  KillEverywhere(RegularizedPlan(), 2, 1);
}

TEST_F(KilledUpdateTest, ClippingOfEachTableByItsNorm) {
  TrainingPlan plan = RegularizedPlan();
  plan.clipping = Clipping::kNorm;
  KillEverywhere(plan, 2, 3);
}

// With caches that just hold a batch, so that each update writes rows back and reads others.
TEST_F(KilledUpdateTest, TablesInFiles) {
  const TrainingPlan plan = FilesPlan(directory_.path());
  for (const uint64_t version : {uint64_t{0}, uint64_t{4}}) KillEverywhere(plan, version, 1);
}

TEST_F(KilledUpdateTest, TablesInFilesThatEvict) {
  const TrainingPlan plan = FilesPlan(directory_.path());
  constexpr uint64_t kVersion = 11;
  const Models models(plan, kVersion);
  int64_t leaving = 0;
  for (const auto& [key, past] : models.before.policy(2).rows()) {
    leaving += models.after.policy(2).rows().count(key) == 0;
  }
  EXPECT_GT(leaving, 2);
  KillEverywhere(plan, kVersion, 1);
}

TEST_F(KilledUpdateTest, TablesThatAdmitAndEvict) {
  const TrainingPlan plan = ForgettingPlan();
  for (const uint64_t version : {uint64_t{6}, uint64_t{13}}) KillEverywhere(plan, version, 1);
}

TEST_F(KilledUpdateTest, TablesThatAdmitAndEvictWithMessagesInOneMailbox) {
  TrainingPlan plan = ForgettingPlan();
  plan.hosts = {0, 0, 1};
  plan.exchange = Exchange::kAllRanks;
  plan.clipping = Clipping::kGlobalNorm;
  plan.clip_limit = 0.5f;
  KillEverywhere(plan, 9, 1);
}

TEST_F(KilledUpdateTest, TableThatGrowsByChunksAndIndexes) {
  TrainingPlan plan = SmallPlan();
  plan.tables.resize(2);
  plan.tables[0].batch = plan.tables[1].batch = 150;
  plan.tables[0].fresh = plan.tables[1].fresh = 100;
  KillEverywhere(plan, 1, 7);
}

TEST_F(KilledUpdateTest, TableOfManyKeysIsCutIntoUnits) {
  TrainingPlan plan = SmallPlan();
  plan.tables[1].batch = 9500;
  plan.tables[1].fresh = 20000;
  plan.reduction = Reduction::kSum;
  KillEverywhere(plan, 1, 1499);
}

// Whatever the first killed leader left, a second one is killed while it recovers, at any point,
// and then a third one finishes.
class KilledRecoveryTest : public RecoveryTest {
 protected:
  // Whether the recovery was killed at that point.
  bool RecoveryKilledAt(int64_t point) {
    return KilledInChild([&] {
      ArmFaultPoint(point);
      auto recovered = Recover();
      EXPECT_OK(recovered);
      recovered.Take().release();
    });
  }
};

TEST_F(KilledRecoveryTest, IsStartedAgain) {
  const TrainingPlan plan = SmallPlan();
  const Models models(plan, 2);
  int64_t kills = 0;
  for (int64_t point = 1; KilledInUpdate(point, plan, 2); point += 9) {
    for (int64_t second = 1;; second += 4, ++kills) {
      SCOPED_TRACE("killed at points " + std::to_string(point) + ", " + std::to_string(second));
      ASSERT_TRUE(KilledInUpdate(point, plan, 2));
      const bool killed = RecoveryKilledAt(second);
      ExpectWhole(models);
      ASSERT_FALSE(HasFailure());
      if (!killed) break;
    }
  }
  EXPECT_GT(kills, 50);
}

TEST_F(KilledRecoveryTest, AgainAndAgain) {
  const TrainingPlan plan = SmallPlan();
  const Models models(plan, 2);
  for (int64_t point = 1; KilledInUpdate(point, plan, 2); point += 2) {
    SCOPED_TRACE("killed at point " + std::to_string(point));
    // Each gets a little further than the last.
    for (int64_t next = 1; RecoveryKilledAt(next); ++next) continue;
    ExpectWhole(models);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(RecoverStoreTest, WithoutAStoreIsNotFound) {
  const TemporaryDirectory directory;
  ExpectError(RecoverStore(TrainingStore(directory.path(), 0), RunInline).status(),
              StatusCode::kNotFound, {kTrainingJob});
}

TEST(RecoverStoreTest, LivingJobIsLeftAlone) {
  const TemporaryDirectory directory;
  auto job = TrainingJob::Create(SmallPlan(), directory.path());
  ASSERT_OK(job);
  RunInChild([&] {
    ExpectError(RecoverStore(TrainingStore(directory.path(), 0), RunInline).status(),
                StatusCode::kAlreadyExists, {kTrainingJob});
  });
  EXPECT_OK(job.value()->Train(1, RunInline));
}

}  // namespace
}  // namespace tfhybrid::recovery_test
