#include "core/passes/pass_keeper.h"

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/passes/rank_passes.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "util/failing_allocation.h"

namespace tfhybrid::pass_keeper_test {
namespace {

constexpr uint64_t kToken = 7;
constexpr int64_t kOwner = 1;

// What the keeper of host 0 told owners.
struct Told {
  int64_t owner;
  int64_t number;
  std::vector<int64_t> keys;
};

// A keeper of a host of two ranks, and its ranks; the test is the owner.
class PassKeeperTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(keeper_.Start()); }

  RankPasses Rank(int local_rank) {
    return RankPasses({directory_.path(), kToken, local_rank, 2, [] { return Status::Ok(); }});
  }
  // All keys in one batch.
  int64_t Announce(RankPasses* rank, std::vector<int64_t> keys, int64_t batches = 1) {
    const std::vector<int32_t> last(keys.size(), static_cast<int32_t>(batches - 1));
    const int64_t number =
        rank->Announce({{"item", 1, std::move(keys), last}}, batches, false).Take();
    EXPECT_OK(rank->Begin(number, 0));
    return number;
  }
  Told Next(std::vector<Told>* of) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !of->empty(); });
    const Told told = of->front();
    of->erase(of->begin());
    return told;
  }
  // Sends rows, each of them `value`.
  void Send(const std::vector<int64_t>& keys, float value, uint64_t version, int64_t answers) {
    const FreshFrame frame = MakeFresh({"item", 1, version, answers, {}, keys, nullptr, nullptr});
    for (size_t i = 0; i < keys.size(); ++i) {
      frame.has_row[i] = 1;
      frame.rows[i] = value;
    }
    EXPECT_OK(keeper_.Receive(kOwner, frame.words.words()));
  }
  static bool IsReady(RankPasses* rank) {
    const std::vector<RankPasses::PassView> views = rank->Of("item");
    return !views.empty() && views.back().pass->file.state() == PassState::kReady;
  }
  static float Value(RankPasses* rank, int64_t key, uint64_t version) {
    const std::vector<RankPasses::PassView> views = rank->Of("item");
    EXPECT_OK(rank->Await(views.back(), kOwner, version, Status::Ok));
    float value = -1.0f;
    views.back().Copy(views.back().Find(key), kOwner, &value);
    return value;
  }

  TemporaryDirectory directory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Told> announced_, released_;  // guarded by mutex_
  std::function<Status(int64_t, const AnnouncedKeys&)> Into(std::vector<Told>* of) {
    return [this, of](int64_t owner, const AnnouncedKeys& keys) {
      const std::lock_guard<std::mutex> guard(mutex_);
      of->push_back({owner, keys.number, {keys.keys.begin(), keys.keys.end()}});
      changed_.notify_all();
      return Status::Ok();
    };
  }
  PassKeeper keeper_{{directory_.path(), kToken, 2, 2,
                      [](const std::string& table) { return Allocation::Whole(table, 2, kOwner); },
                      Into(&announced_), Into(&released_)}};
};

// A lookup that found it again and again would never end.
TEST_F(PassKeeperTest, APassThatTheLeaderHasLetGoIsNotConsulted) {
  RankPasses rank = Rank(0);
  Announce(&rank, {1, 2});
  Send({1, 2}, 1.0f, 0, Next(&announced_).number);
  EXPECT_EQ(rank.Of("item").size(), 1u);
  keeper_.LetAllGo();
  EXPECT_TRUE(rank.Of("item").empty());
}

TEST_F(PassKeeperTest, AKeyThatTwoRanksWantIsAskedForOnce) {
  RankPasses first = Rank(0), second = Rank(1);
  Announce(&first, {1, 2});
  const Told told = Next(&announced_);
  EXPECT_EQ(told.owner, kOwner);
  EXPECT_EQ(told.keys, (std::vector<int64_t>{1, 2}));
  // One that is on its way, and one that is not.
  Announce(&second, {2, 3});
  const Told more = Next(&announced_);
  EXPECT_EQ(more.keys, std::vector<int64_t>{3});
  Send({3}, 3.0f, 5, more.number);
  EXPECT_FALSE(IsReady(&second));
  Send({1, 2}, 2.0f, 5, told.number);
  EXPECT_EQ(Value(&first, 2, 5), 2.0f);
  EXPECT_EQ(Value(&second, 2, 5), 2.0f);
  // A row that is there is copied.
  const int64_t again = Announce(&first, {3});
  while (!IsReady(&first)) std::this_thread::yield();
  EXPECT_EQ(Value(&first, 3, 5), 3.0f);
  EXPECT_OK(first.End(again));
}

TEST_F(PassKeeperTest, AKeyIsReleasedOnceNoPassWantsIt) {
  RankPasses first = Rank(0), second = Rank(1);
  Announce(&first, {1, 2});
  Send({1, 2}, 1.0f, 0, Next(&announced_).number);
  const int64_t other = Announce(&second, {2, 3});
  Send({3}, 1.0f, 0, Next(&announced_).number);
  first.CountPost({"user"});
  EXPECT_OK(keeper_.ReleaseUsed());
  first.CountPost({"item"});
  EXPECT_OK(keeper_.ReleaseUsed());
  Told released = Next(&released_);
  EXPECT_EQ(released.keys, std::vector<int64_t>{1});
  EXPECT_EQ(released.number, 2);
  EXPECT_TRUE(first.Of("item").empty());
  // What is not announced any longer is asked for again.
  Announce(&first, {1});
  EXPECT_EQ(Next(&announced_).keys, std::vector<int64_t>{1});
  EXPECT_OK(second.End(other));
  EXPECT_EQ(Next(&released_).keys, (std::vector<int64_t>{2, 3}));
}

TEST_F(PassKeeperTest, AnAnswerToAPassThatHasEndedIsNotTakenForTheNextOne) {
  RankPasses rank = Rank(0);
  const int64_t ended = Announce(&rank, {1});
  const Told before = Next(&announced_);
  EXPECT_OK(rank.End(ended));
  Announce(&rank, {1});
  const Told now = Next(&announced_);
  Send({1}, 1.0f, 0, before.number);
  EXPECT_FALSE(IsReady(&rank));
  Send({1}, 2.0f, 0, now.number);
  EXPECT_EQ(Value(&rank, 1, 0), 2.0f);
}

TEST_F(PassKeeperTest, WhatComesThoughNoPassWantsItIsReleasedOnceMore) {
  RankPasses rank = Rank(0);
  const int64_t ended = Announce(&rank, {1});
  const Told told = Next(&announced_);
  EXPECT_OK(rank.End(ended));
  EXPECT_EQ(Next(&released_).keys, std::vector<int64_t>{1});
  // The owner had not read the announcement.
  Send({1}, 1.0f, 0, told.number);
  EXPECT_EQ(Next(&released_).keys, std::vector<int64_t>{1});
}

TEST_F(PassKeeperTest, WhoWaitsForAnOwnerThatIsGoneIsTold) {
  RankPasses rank = Rank(0);
  Announce(&rank, {1});
  std::thread waiting([&] {
    const Status why = rank.Await(rank.Of("item").back(), kOwner, 0, Status::Ok);
    ExpectError(why, StatusCode::kPeerDied, {"rank 4 on host b"});
  });
  keeper_.Fail(Status::Error(StatusCode::kPeerDied, "rank 4 on host b is gone"));
  waiting.join();
  // And who announces later.
  RankPasses other = Rank(1);
  Announce(&other, {1});
  ExpectError(other.Await(other.Of("item").back(), kOwner, 0, Status::Ok), StatusCode::kPeerDied,
              {"host b"});
}

TEST_F(PassKeeperTest, WhatADeadJobLeftIsRemoved) {
  RankPasses rank = Rank(0);
  const std::string path = PassFile::Path(directory_.path(), 0, Announce(&rank, {1}));
  keeper_.Close();
  PassKeeper next({directory_.path(), kToken, 2, 2,
                   [](const std::string& table) { return Allocation::Whole(table, 2, kOwner); },
                   Into(&announced_), Into(&released_)});
  EXPECT_OK(next.Start());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(PassKeeperTest, APassThatEndsGivesItsFileBack) {
  RankPasses rank = Rank(1);
  const int64_t number = Announce(&rank, {1, 2, 3}, 2);
  const std::string path = PassFile::Path(directory_.path(), 1, number);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_OK(rank.End(number));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_OK(rank.End(number));
  EXPECT_FALSE(rank.End(number + 1).ok());
}

// The number of the allocation that fails on the keeper's thread.
class PassKeeperMemoryTest : public PassKeeperTest, public testing::WithParamInterface<int64_t> {};

TEST_P(PassKeeperMemoryTest, APassForWhichMemoryRunsOutFailsAndIsNotHalfThere) {
  RankPasses rank = Rank(0);
  Announce(&rank, {1, 2});
  Send({1, 2}, 1.0f, 0, Next(&announced_).number);
  FailAllocation(GetParam(), Allocating::kOnOtherThreads);
  const int64_t second = Announce(&rank, {2, 3, 4});
  const PassFile& file = rank.Of("item").back().pass->file;
  const auto asked = [&] {
    const std::lock_guard<std::mutex> guard(mutex_);
    return !announced_.empty();
  };
  while (file.state() == PassState::kAsked && !asked()) std::this_thread::yield();
  FailAllocation(0);
  Send({1, 2, 3, 4}, 5.0f, 1, 2);
  // Or memory ran out before or after this pass, or where one can do without.
  EXPECT_TRUE(file.AwaitState(PassState::kReady, 10000));
  if (file.state() == PassState::kReady) {
    EXPECT_EQ(Value(&rank, 4, 1), 5.0f);
  } else {
    ExpectError(file.failure(), StatusCode::kPeerDied, {"Out of memory for a pass"});
  }
  EXPECT_OK(rank.End(second));
}

INSTANTIATE_TEST_SUITE_P(Allocations, PassKeeperMemoryTest, testing::Range<int64_t>(1, 40));

}  // namespace
}  // namespace tfhybrid::pass_keeper_test
