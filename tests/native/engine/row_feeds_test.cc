#include "core/engine/row_feeds.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "core/engine/held_writers.h"
#include "engine/engine_job.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::row_feeds_test {
namespace {

// What hosts 0 and 1 receive of a table of this process, whose rows lie in memory or in files.
class RowFeedsTest : public testing::TestWithParam<bool> {
 protected:
  struct Got {
    uint64_t version;
    int64_t answers;
    std::map<int64_t, float> rows;
  };

  void Announce(int64_t host, int64_t number, const std::vector<int64_t>& keys) {
    feeds_.Announce(host, job_.tables[0], {"item", 2, number, keys});
  }
  void Train(const std::vector<int64_t>& keys, float gradient = -1.0f) {
    job_.Train(keys, gradient);
    EXPECT_OK(job_.Wait());
    const HeldWriters held(job_.tables);
    feeds_.Changed(job_.tables[0], {keys});
  }
  std::vector<Got> All(int64_t host) {
    feeds_.Close();
    return got_[host];
  }

  TemporaryDirectory directory_;
  EngineJob job_{directory_.path(), "job", {{"item"}, {2}}, GetParam() ? directory_.path() : ""};
  std::mutex mutex_;
  std::map<int64_t, std::vector<Got>> got_;  // guarded by mutex_
  RowFeeds feeds_{{1, 1}, [this](int64_t host, FrameKind kind, Span<const int64_t> words) {
                    ASSERT_EQ(kind, FrameKind::kFresh);
                    const Result<FreshRows> fresh = ParseFresh(words);
                    ASSERT_OK(fresh);
                    Got got = {fresh.value().version, fresh.value().answers, {}};
                    for (int64_t i = 0; i < fresh.value().keys.size(); ++i) {
                      got.rows[fresh.value().keys[i]] = fresh.value().rows[2 * i];
                    }
                    const std::lock_guard<std::mutex> guard(mutex_);
                    got_[host].push_back(got);
                  }};
};

class RowFeedsOfFilesTest : public RowFeedsTest {};

TEST_P(RowFeedsTest, HostsGetWhatTheyHaveAnnouncedAndNothingElse) {
  Announce(0, 1, {1, 2});
  Train({1, 3});
  Announce(1, 1, {3});
  Train({3});
  const std::vector<Got> first = All(0), second = All(1);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].answers, 1);
  EXPECT_EQ(first[0].rows, (std::map<int64_t, float>{{1, 0.0f}, {2, 0.0f}}));
  EXPECT_EQ(first[1].version, 1u);
  EXPECT_EQ(first[1].rows, (std::map<int64_t, float>{{1, 1.0f}}));
  // Nothing of it has changed, and that is said.
  EXPECT_EQ(first[2].version, 2u);
  EXPECT_TRUE(first[2].rows.empty());
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].rows, (std::map<int64_t, float>{{3, 1.0f}}));
  EXPECT_EQ(second[1].rows, (std::map<int64_t, float>{{3, 2.0f}}));
}

TEST_P(RowFeedsTest, WhatIsReleasedIsNotSentUnlessItWasAnnouncedAgain) {
  const std::vector<int64_t> keys = {1, 2};
  Announce(0, 1, {1, 2, 3});
  feeds_.Release(0, {"item", 2, 1, keys});
  Train({1, 2, 3});
  // The release of before comes late.
  Announce(0, 2, {1});
  feeds_.Release(0, {"item", 2, 1, keys});
  Train({1, 2, 3});
  const std::vector<Got> got = All(0);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[1].rows, (std::map<int64_t, float>{{3, 1.0f}}));
  EXPECT_EQ(got[3].rows, (std::map<int64_t, float>{{1, 2.0f}, {3, 2.0f}}));
}

// The decay is brought back to nearly 1, where it was when the host last had keys.
TEST_P(RowFeedsTest, RowsThatWereScaledAreSentToAHostThatHadNoKeysBefore) {
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kSgd);
  optimizer.weight_decay = 0.9375;
  job_.tables[0]->writer->ForgetOptimizer();
  ASSERT_OK(job_.tables[0]->writer->SetOptimizer(optimizer));
  const std::vector<int64_t> keys = {1};
  Train(keys);
  Announce(0, 1, keys);
  feeds_.Release(0, {"item", 2, 1, keys});
  // To just below the least decay, 2^-32.
  while (job_.tables[0]->reader->decays().rows >= 0x1p-32f) Train({2}, 0.0f);
  Announce(0, 2, keys);
  Train({2}, 0.0f);
  const std::vector<Got> got = All(0);
  ASSERT_EQ(got.back().version, job_.tables[0]->reader->version());
  EXPECT_EQ(got.back().rows.size(), 1u);
}

// Rows in files are read before updates are kept away: an update may come in between.
TEST_P(RowFeedsTest, FramesAreWholeAndNoneIsOlderThanOneBefore) {
  std::vector<int64_t> keys(2000);
  std::iota(keys.begin(), keys.end(), 0);
  Train(keys);
  std::atomic<bool> done{false};
  std::thread announcing([&] {
    for (int64_t number = 1; number <= 50; ++number) Announce(0, number, keys);
    done = true;
  });
  while (!done) Train(keys);
  announcing.join();
  uint64_t version = 0;
  for (const Got& got : All(0)) {
    EXPECT_GE(got.version, version);
    version = got.version;
    EXPECT_EQ(got.rows.size(), keys.size());
    for (const auto& [key, row] : got.rows) ASSERT_EQ(row, static_cast<float>(version)) << key;
  }
  EXPECT_GT(version, 1u);
}

// The cache has room for 2,730 rows, and the table has 6,000.
TEST_P(RowFeedsOfFilesTest, RowsAreInTheCacheBeforeTheirUpdateInTrainingAlone) {
  const std::vector<int64_t> first = KeysBetween(0, 2000);
  for (const auto& keys : {first, KeysBetween(2000, 4000), KeysBetween(4000, 6000)}) Train(keys);
  const auto stats = [&] { return job_.tables[0]->reader->Stats(); };
  // For each row that comes another one is written.
  const auto await = [&](int64_t written) {
    for (int i = 0; i < 10'000 && stats().written_rows < written; ++i) usleep(1000);
    EXPECT_EQ(stats().written_rows, written);
  };
  Announce(0, 1, {5999});
  Announce(0, 2, KeysBetween(0, 600));  // one announcement since the update is enough
  Train({5999});
  const TableStats before = stats();
  Announce(0, 3, KeysBetween(1000, 1300));
  await(before.written_rows + 300);
  Train(KeysBetween(1000, 1300));
  EXPECT_EQ(stats().cache_hits, before.cache_hits + 300);
  EXPECT_EQ(stats().cache_misses, before.cache_misses);
  // Rows that would take more than half of the cache stay where they are.
  Announce(0, 4, KeysBetween(1300, 2000));
  // Keys without a row have nothing to be brought, nor have those that are no longer wanted.
  Train({5999});
  feeds_.Release(0, {"item", 2, 4, first});
  Announce(0, 5, {7000, 2100, -7, 2100});
  await(before.written_rows + 301);
  EXPECT_EQ(All(0).back().answers, 5);
}

INSTANTIATE_TEST_SUITE_P(Files, RowFeedsOfFilesTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(MemoryAndFiles, RowFeedsTest, testing::Bool());

}  // namespace
}  // namespace tfhybrid::row_feeds_test
