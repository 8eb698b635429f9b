#include "core/compute/row_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "shm/status_asserts.h"

namespace tfhybrid::row_policy_test {
namespace {

constexpr int64_t kMaxTime = std::numeric_limits<int64_t>::max();

RowPolicy Policy() {
  RowPolicy policy;
  policy.kind = PolicyKind::kRows;
  return policy;
}

TEST(RowPolicyTest, NoRuleEvictsNothing) {
  EXPECT_FALSE(HasRule(Policy()));
  EXPECT_FALSE(IsExpired(Policy(), {0.0f, 0, kNoTime}, 0.0, {1000000, kMaxTime}));
}

TEST(RowPolicyTest, UnseenSteps) {
  RowPolicy policy = Policy();
  policy.unseen_steps = 10;
  EXPECT_TRUE(HasRule(policy));
  EXPECT_FALSE(IsExpired(policy, {1.0f, 100, kNoTime}, 0.0, {109, kNoTime}));
  EXPECT_TRUE(IsExpired(policy, {1.0f, 100, kNoTime}, 0.0, {110, kNoTime}));
}

TEST(RowPolicyTest, StepsAreCountedBeyondTheirThirtyTwoBits) {
  RowPolicy policy = Policy();
  policy.unseen_steps = 10;
  policy.half_life = 1000;
  const uint64_t step = (uint64_t{5} << 32) + 4;
  RowHistory history = {8.0f, static_cast<uint32_t>(step - 9), kNoTime};  // of the epoch before
  EXPECT_FALSE(IsExpired(policy, history, 0.0, {step, kNoTime}));
  EXPECT_TRUE(IsExpired(policy, history, 0.0, {step + 1, kNoTime}));
  const uint64_t multiple = (step / 1000 + 1) * 1000;
  EXPECT_EQ(8.0f, Frequency(policy, history, {multiple - 1, kNoTime}));
  EXPECT_EQ(4.0f, Frequency(policy, history, {multiple, kNoTime}));
  Touch(policy, {multiple + 1000, 77}, &history);
  EXPECT_EQ(3.0f, history.frequency);
  EXPECT_EQ(static_cast<uint32_t>(multiple + 1000), history.last_step);
  EXPECT_EQ(77, history.last_time);
}

TEST(RowPolicyTest, UnseenTimeOverTheWholeClock) {
  RowPolicy policy = Policy();
  policy.unseen_time = 100;
  EXPECT_FALSE(IsExpired(policy, {1.0f, 0, -50}, 0.0, {9, 49}));
  EXPECT_TRUE(IsExpired(policy, {1.0f, 0, -50}, 0.0, {9, 50}));
  EXPECT_TRUE(IsExpired(policy, {1.0f, 0, kNoTime + 1}, 0.0, {9, kMaxTime}));
  // No clock, then and now.
  EXPECT_FALSE(IsExpired(policy, {1.0f, 0, kNoTime}, 0.0, {9, kMaxTime}));
  EXPECT_FALSE(IsExpired(policy, {1.0f, 0, 5}, 0.0, {9, kNoTime}));
}

TEST(RowPolicyTest, FrequencyAndNorm) {
  RowPolicy policy = Policy();
  policy.half_life = 4;
  policy.min_frequency = 1.0;
  EXPECT_FALSE(IsExpired(policy, {2.0f, 3, kNoTime}, 0.0, {7, kNoTime}));
  EXPECT_TRUE(IsExpired(policy, {2.0f, 3, kNoTime}, 0.0, {8, kNoTime}));
  EXPECT_EQ(0.0f, Frequency(policy, {2.0f, 3, kNoTime}, {uint64_t{1} << 40, kNoTime}));
  policy = Policy();
  policy.min_norm = 0.5;
  EXPECT_TRUE(IsExpired(policy, {1.0f, 3, kNoTime}, 0.24, {7, kNoTime}));
  EXPECT_FALSE(IsExpired(policy, {1.0f, 3, kNoTime}, 0.25, {7, kNoTime}));
}

TEST(RowPolicyTest, KeysOfTheUpdateStay) {
  RowPolicy policy = Policy();
  policy.unseen_steps = policy.unseen_time = 1;
  policy.min_frequency = policy.min_norm = 100.0;
  EXPECT_FALSE(IsExpired(policy, {1.0f, 7, 0}, 0.0, {7, 1000}));
  EXPECT_TRUE(IsExpired(policy, {1.0f, 7, 0}, 0.0, {8, 1000}));
}

TEST(RowPolicyTest, SurplusIsTheSameInWhateverOrderRowsCome) {
  std::mt19937 random(5);
  for (const uint32_t frequent_stay : {0u, 1u}) {
    RowPolicy policy = Policy();
    policy.max_rows = 40;
    policy.slices_log2 = 2;
    policy.frequent_stay = frequent_stay;
    std::vector<SliceRow> rows;
    for (int64_t key = -15; key < 15; ++key) {
      const auto last = static_cast<uint32_t>(100 - key * key % 7);
      rows.push_back({key, key + 15, {static_cast<float>(key * key % 5), last, kNoTime}});
    }
    std::vector<int64_t> gone;
    for (int turn = 0; turn < 10; ++turn) {
      std::shuffle(rows.begin(), rows.end(), random);
      const int64_t surplus = FindSurplus(policy, {100, kNoTime}, &rows);
      std::vector<int64_t> keys;
      for (int64_t i = 0; i < surplus; ++i) {
        EXPECT_NE(100u, rows[static_cast<size_t>(i)].history.last_step);
        keys.push_back(rows[static_cast<size_t>(i)].key);
      }
      std::sort(keys.begin(), keys.end());
      if (turn == 0) gone = keys;
      EXPECT_EQ(gone, keys);
    }
    EXPECT_EQ(frequent_stay == 0 ? 20u : gone.size(), gone.size());
    EXPECT_GT(gone.size(), 10u);
  }
  std::vector<SliceRow> few(10);
  RowPolicy policy = Policy();
  policy.max_rows = 10;
  EXPECT_EQ(0, FindSurplus(policy, {100, kNoTime}, &few));
}

TEST(RowPolicyTest, WaitingKeysAreCountedOnceInAnUpdate) {
  EXPECT_EQ(4.0f, CountWith({3.0f, 6, kNoTime}, 7));
  EXPECT_EQ(3.0f, CountWith({3.0f, 7, kNoTime}, 7));
}

TEST(RowPolicyTest, ValidateRefusesWhatMakesNoSense) {
  EXPECT_OK(ValidatePolicy({}));
  const auto refused = [](const auto& change) {
    RowPolicy policy = Policy();
    change(&policy);
    ExpectError(ValidatePolicy(policy), StatusCode::kInvalidArgument, {"Received: slices_log2="});
  };
  refused([](RowPolicy* policy) { policy->slices_log2 = 21; });
  refused([](RowPolicy* policy) { policy->admission = 1u << 21; });
  refused([](RowPolicy* policy) { policy->unseen_steps = int64_t{1} << 31; });
  refused([](RowPolicy* policy) { policy->waiting_steps = -1; });
  refused([](RowPolicy* policy) { policy->unseen_time = -1; });
  refused([](RowPolicy* policy) { policy->half_life = -1; });
  refused([](RowPolicy* policy) { policy->max_rows = -1; });
  refused([](RowPolicy* policy) { policy->min_norm = std::numeric_limits<double>::quiet_NaN(); });
  refused([](RowPolicy* policy) { policy->min_frequency = -0.5; });
  refused([](RowPolicy* policy) { policy->kind = static_cast<PolicyKind>(3); });
  refused([](RowPolicy* policy) { *policy = {PolicyKind::kNone, 2}; });
  refused([](RowPolicy* policy) {
    *policy = {};
    policy->max_rows = 1;
  });
}

}  // namespace
}  // namespace tfhybrid::row_policy_test
