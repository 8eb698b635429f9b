#include "core/update/roll_forward.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "update/recovery_fixture.h"

namespace tfhybrid::roll_forward_test {
namespace {

constexpr uint64_t kVersion = 3;

// Two hosts of one job that was killed: the one that is ahead has the update after kVersion.
class RollForwardTest : public RecoveryTest {
 protected:
  static TrainingPlan OnTwoHosts(TrainingPlan plan) {
    plan.hosts = {0, 0, 1};
    plan.exchange = Exchange::kAllRanks;
    return plan;
  }

  // What a leader that dies after `updates` updates leaves in a directory; with sharded tables it
  // has staged the next one.
  void LeaveBehind(const std::string& directory, uint64_t updates) const {
    RunInChild([&] {
      auto job = TrainingJob::Create(plan_, directory);
      ASSERT_OK(job);
      for (uint64_t v = 1; v <= updates; ++v) ASSERT_OK(job.value()->Train(v, RunInline));
      if (plan_.sharded && updates == kVersion) {
        ASSERT_OK(job.value()->Stage(updates + 1, RunInline));
      }
      job.Take().release();
    });
  }

  // What the other host sends, after `updates` updates.
  std::vector<int64_t> UpdatesAt(uint64_t updates) const {
    const TemporaryDirectory other;
    LeaveBehind(other.path(), updates);
    const auto store = RecoverStore(TrainingStore(other.path(), 0), RunInline);
    EXPECT_OK(store);
    auto sent = LastUpdates(*store.value());
    EXPECT_OK(sent);
    return sent.Take();
  }

  void ExpectAhead() const {
    TrainingModel model(plan_);
    model.AdvanceTo(kVersion + 1);
    auto recovered = Recover();
    ASSERT_OK(recovered);
    EXPECT_EQ("", Difference(*recovered.value(), model, true));
  }

  // The host that is behind, with what the other sends.
  void ExpectToCatchUp() const {
    LeaveBehind(directory_.path(), kVersion);
    const std::vector<int64_t> sent = UpdatesAt(kVersion + 1);
    {
      auto behind = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
      ASSERT_OK(behind);
      ASSERT_OK(RollForward(sent, *behind.value(), RunInline));
      EXPECT_EQ(kVersion + 1, VersionOf(*behind.value(), plan_));
      behind.value()->LeaveBehind();
    }
    ExpectAhead();
  }

  TrainingPlan plan_ = OnTwoHosts(SmallPlan());
};

TEST_F(RollForwardTest, HostThatIsBehindComesToTheSameBits) { ExpectToCatchUp(); }

TEST_F(RollForwardTest, WithDecayPenaltiesAndClipping) {
  plan_ = OnTwoHosts(RegularizedPlan());
  ExpectToCatchUp();
}

TEST_F(RollForwardTest, WithAdmissionAndEviction) {
  plan_ = OnTwoHosts(ForgettingPlan());
  ExpectToCatchUp();
}

TEST_F(RollForwardTest, AHostHasWhatItStagedOfShardedTables) {
  const size_t with_messages = UpdatesAt(kVersion + 1).size();
  plan_ = OnTwoHosts(RegularizedPlan());
  plan_.sharded = true;
  ExpectToCatchUp();
  plan_ = OnTwoHosts(SmallPlan());
  plan_.sharded = true;
  EXPECT_LT(UpdatesAt(kVersion + 1).size(), with_messages);
}

TEST_F(RollForwardTest, FirstUpdateOfAll) {
  LeaveBehind(directory_.path(), 0);
  auto behind = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
  ASSERT_OK(behind);
  const std::vector<int64_t> sent = UpdatesAt(1);
  ASSERT_OK(RollForward(sent, *behind.value(), RunInline));
  EXPECT_EQ(1u, VersionOf(*behind.value(), plan_));
}

TEST_F(RollForwardTest, UpdateThatIsThereIsNotAppliedAgain) {
  LeaveBehind(directory_.path(), kVersion);
  auto store = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
  ASSERT_OK(store);
  const std::vector<int64_t> sent = UpdatesAt(kVersion);
  ASSERT_OK(RollForward(sent, *store.value(), RunInline));
  TrainingModel model(plan_);
  model.AdvanceTo(kVersion);
  EXPECT_EQ("", Difference(*store.value(), model, true));
}

TEST_F(RollForwardTest, TwoUpdatesApartIsTooFar) {
  LeaveBehind(directory_.path(), kVersion);
  auto store = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
  ASSERT_OK(store);
  const std::vector<int64_t> sent = UpdatesAt(kVersion + 2);
  ExpectError(RollForward(sent, *store.value(), RunInline), StatusCode::kDataLoss,
              {"version 3", "version 5"});
}

TEST_F(RollForwardTest, WhatWasCutShortIsRefused) {
  LeaveBehind(directory_.path(), kVersion);
  auto store = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
  ASSERT_OK(store);
  std::vector<int64_t> sent = UpdatesAt(kVersion + 1);
  while (sent.size() > 1) {
    sent.pop_back();
    ASSERT_FALSE(RollForward(sent, *store.value(), RunInline).ok()) << sent.size();
  }
  EXPECT_EQ(kVersion, VersionOf(*store.value(), plan_));
}

// The other host keeps the messages until all agree, so it can always be tried again.
TEST_F(RollForwardTest, KilledAtAnyPointItIsTriedAgain) {
  const std::vector<int64_t> sent = UpdatesAt(kVersion + 1);
  int64_t kills = 0;
  for (int64_t point = 1;; point += 3, ++kills) {
    SCOPED_TRACE("killed at point " + std::to_string(point));
    std::filesystem::remove_all(Directory());
    LeaveBehind(directory_.path(), kVersion);
    const bool killed = KilledInChild([&] {
      auto behind = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
      ASSERT_OK(behind);
      ArmFaultPoint(point);
      EXPECT_OK(RollForward(sent, *behind.value(), RunInline));
      behind.Take().release();
    });
    {
      auto again = RecoverStore(TrainingStore(directory_.path(), 0), RunInline);
      ASSERT_OK(again);
      ASSERT_OK(RollForward(sent, *again.value(), RunInline));
      again.value()->LeaveBehind();
    }
    ExpectAhead();
    if (!killed || HasFailure()) break;
  }
  EXPECT_GT(kills, 20);
}

}  // namespace
}  // namespace tfhybrid::roll_forward_test
