#include "core/store/store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/store/store_files.h"
#include "core/store/table_digest.h"
#include "shm/child_process.h"
#include "store/table_fixture.h"

namespace tfhybrid::store_test {
namespace {

constexpr int kTimeoutMs = 30000;

class StoreTest : public testing::Test {
 protected:
  StoreConfig Config(const std::string& job, int local_rank) const {
    return {directory_.path(), job, local_rank,
            "rank " + std::to_string(local_rank) + ", pid " + std::to_string(getpid()), kToken};
  }
  std::unique_ptr<Store> Create(const std::string& job) {
    auto store = Store::Create(Config(job, 0), &reclaimed_);
    EXPECT_OK(store);
    return store.ok() ? store.Take() : nullptr;
  }
  std::unique_ptr<Store> Attach(const std::string& job, int local_rank) {
    auto store = Store::Attach(Config(job, local_rank));
    EXPECT_OK(store);
    return store.ok() ? store.Take() : nullptr;
  }
  Status CreateError(const std::string& job) {
    return Store::Create(Config(job, 0), &reclaimed_).status();
  }
  std::string DirectoryOf(const std::string& job) const {
    return directory_.File("tfhybrid-" + std::to_string(geteuid()) + "-" + job);
  }
  bool Exists(const std::string& job) const { return std::filesystem::exists(DirectoryOf(job)); }

  TemporaryDirectory directory_;
  std::vector<std::string> reclaimed_;
};

TEST_F(StoreTest, LeaderCreatesAndTheOthersAttach) {
  auto leader = Create("job");
  ASSERT_NE(nullptr, leader);
  EXPECT_TRUE(leader->is_leader());
  EXPECT_EQ(DirectoryOf("job"), leader->directory());
  struct stat info;
  ASSERT_EQ(0, stat(leader->directory().c_str(), &info));
  EXPECT_EQ(0700u, info.st_mode & 07777);
  ASSERT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  RunInChild([&] {
    auto other = Attach("job", 1);
    ASSERT_NE(nullptr, other);
    EXPECT_FALSE(other->is_leader());
    EXPECT_OK(other->CheckLeader());
    auto table = other->OpenNamed(ConfigOf("item", 4), kTimeoutMs);
    ASSERT_OK(table);
    EXPECT_EQ(nullptr, table.value()->writer);
    EXPECT_EQ(table.value(), other->Find("item"));
  });
  EXPECT_OK(leader->CheckLeader());
  EXPECT_TRUE(reclaimed_.empty());
}

TEST_F(StoreTest, TablesOfTheLeaderAreReadByTheOthers) {
  auto leader = Create("job");
  auto table = leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs).Take();
  const std::vector<float> rows(4, 3.5f);
  ASSERT_OK(WriteRows(table->writer.get(), {7}, rows));
  table->writer->PublishVersion(12);
  const uint64_t digest = TableDigest(table.get()).Take();
  RunInChild([&] {
    auto other = Attach("job", 1);
    auto seen = other->OpenNamed(ConfigOf("item", 4), kTimeoutMs).Take();
    std::vector<float> read(4);
    const std::vector<int64_t> keys = {7};
    EXPECT_OK(seen->reader->Lookup(keys, read.data()));
    EXPECT_EQ(rows, read);
    EXPECT_EQ(12u, seen->posted.load());
    EXPECT_EQ(digest, TableDigest(seen.get()).Take());
  });
}

TEST_F(StoreTest, OtherRanksWaitUntilTheLeaderCreatesTheTable) {
  auto leader = Create("job");
  std::thread slow([&] {
    // Gives the waiting rank time to meet the missing table; right either way.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  });
  auto other = Attach("job", 1);
  EXPECT_OK(other->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  slow.join();
  ExpectError(other->OpenNamed(ConfigOf("never", 4), 10).status(), StatusCode::kDeadlineExceeded,
              {"'never'"});
}

TEST_F(StoreTest, SecondLivingJobOfTheNameIsRefusedAndTheFirstNamed) {
  ChildProcess first([&] { Create("job").release(); });
  ChildProcess member([&] { Attach("job", 1).release(); });
  const std::string pid = "pid " + std::to_string(first.pid());
  const std::string member_pid = "pid " + std::to_string(member.pid());
  ExpectError(CreateError("job"), StatusCode::kAlreadyExists,
              {"'job'", "rank 0, " + pid, "rank 1, " + member_pid});
  first.Kill();
  ExpectError(CreateError("job"), StatusCode::kAlreadyExists, {"rank 1, " + member_pid});
  EXPECT_TRUE(reclaimed_.empty());
  member.Kill();
  EXPECT_OK(CreateError("job"));
}

TEST_F(StoreTest, WhatAnotherUserPutInTheStoresPlaceIsNoRunningJob) {
  if (geteuid() != 0) GTEST_SKIP() << "Only root can give a directory to another user";
  const std::string theirs = StoreDirectory(directory_.path(), "job");
  ASSERT_EQ(0, mkdir(theirs.c_str(), 0700));
  ASSERT_EQ(0, chown(theirs.c_str(), 4321, 4321));
  ExpectError(CreateError("job"), StatusCode::kSystem, {theirs, "user 4321"});
}

TEST_F(StoreTest, OneProcessHoldsAJobOnce) {
  auto first = Create("job");
  ExpectError(CreateError("job"), StatusCode::kAlreadyExists, {"'job'", "this process"});
  RunInChild([&] { EXPECT_FALSE(CreateError("job").ok()); });
}

TEST_F(StoreTest, DeadJobIsReclaimedWithItsBytesAndALivingOneIsNot) {
  ChildProcess dead([&] {
    auto store = Create("dead");
    ASSERT_OK(store->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
    store.release();
  });
  ChildProcess living([&] { Create("living").release(); });
  const std::string pid = "pid " + std::to_string(dead.pid());
  dead.Kill();
  EXPECT_TRUE(Exists("dead"));
  auto store = Create("another");
  ASSERT_EQ(1u, reclaimed_.size());
  EXPECT_NE(std::string::npos, reclaimed_[0].find(DirectoryOf("dead")));
  EXPECT_NE(std::string::npos, reclaimed_[0].find("rank 0, " + pid));
  // The store's page, the table's, its index's, and the few bytes of the lock.
  const int64_t bytes = std::stoll(reclaimed_[0].substr(reclaimed_[0].find(": ") + 2));
  EXPECT_GT(bytes, 3 * 4096);
  EXPECT_LT(bytes, 4 * 4096);
  EXPECT_FALSE(Exists("dead"));
  EXPECT_TRUE(Exists("living"));
  EXPECT_TRUE(Exists("another"));
}

TEST_F(StoreTest, DeadJobIsReclaimedWhicheverWayTheDirectoryIsSpelt) {
  ChildProcess dead([&] { Create("job").release(); });
  dead.Kill();
  StoreConfig config = Config("job", 0);
  config.shm_directory += "/";
  auto store = Store::Create(config, &reclaimed_);
  EXPECT_OK(store);
  EXPECT_EQ(1u, reclaimed_.size());
}

TEST_F(StoreTest, WhatIsNotAStoreStaysWhereItIs) {
  const std::string prefix = "tfhybrid-" + std::to_string(geteuid());
  std::filesystem::create_directory(directory_.File(prefix + "0-other_user"));
  std::filesystem::create_directory(directory_.File("kept"));
  std::filesystem::create_directory_symlink("kept", directory_.File(prefix + "-link"));
  std::ofstream(directory_.File(prefix + "-file")) << "kept";
  auto store = Create("job");
  EXPECT_TRUE(reclaimed_.empty());
  EXPECT_TRUE(std::filesystem::exists(directory_.File(prefix + "0-other_user")));
  EXPECT_TRUE(std::filesystem::exists(directory_.File(prefix + "-link")));
  EXPECT_TRUE(std::filesystem::exists(directory_.File(prefix + "-file")));
}

TEST_F(StoreTest, OnlyFilesHaveBytes) {
  std::ofstream(directory_.File("file")) << "12345";
  std::filesystem::create_directory(directory_.File("folder"));
  std::filesystem::create_symlink("gone", directory_.File("link"));
  EXPECT_EQ(5, BytesIn(directory_.path()));
  EXPECT_EQ(0, BytesIn(directory_.File("absent")));
}

TEST_F(StoreTest, AttachWithoutALeaderSaysWhatToShare) {
  ExpectError(Store::Attach(Config("job", 1)).status(), StatusCode::kNotFound,
              {"rank 1", "does not see the store of its leader", directory_.path(), "--ipc=host"});
}

TEST_F(StoreTest, AttachWithAnotherTokenIsRefused) {
  auto leader = Create("job");
  StoreConfig config = Config("job", 1);
  config.token = kToken + 1;
  ExpectError(Store::Attach(config).status(), StatusCode::kNotFound,
              {"token " + std::to_string(kToken + 1), "Received: " + std::to_string(kToken)});
  EXPECT_TRUE(Exists("job"));
}

TEST_F(StoreTest, TwoProcessesCannotBeTheSameRank) {
  auto leader = Create("job");
  ChildProcess first([&] { Attach("job", 1).release(); });
  ExpectError(Store::Attach(Config("job", 1)).status(), StatusCode::kAlreadyExists,
              {"rank 1, pid " + std::to_string(first.pid())});
}

TEST_F(StoreTest, JobNamesAreFileNames) {
  for (const char* job : {"", "a/b", "..%", "a b", "\xc3\xa9"}) {
    ExpectError(CreateError(job), StatusCode::kInvalidArgument, {"Received: '" + std::string(job)});
    EXPECT_FALSE(Store::Attach(Config(job, 1)).ok());
  }
  EXPECT_FALSE(CreateError(std::string(65, 'x')).ok());
  EXPECT_OK(CreateError(std::string(64, 'x')));
  EXPECT_OK(CreateError(".."));
}

TEST_F(StoreTest, TableIsOpenedOnce) {
  auto leader = Create("job");
  ASSERT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  ExpectError(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs).status(),
              StatusCode::kAlreadyExists, {"'item'", "unique"});
  EXPECT_EQ(nullptr, leader->Find("other"));
}

TEST_F(StoreTest, TableIsFoundTogetherWithThatOfItsWaitingKeys) {
  auto leader = Create("job");
  TableConfig config = ConfigOf("item", 4);
  config.policy.kind = PolicyKind::kRows;
  config.policy.admission = 2;
  // Another thread may look for a table that is being opened: a report does so while a model is
  // built.
  for (int i = 0; i < 200; ++i) {
    config.name = "item " + std::to_string(i);
    std::thread finds([&leader, name = config.name] {
      std::shared_ptr<OpenTable> found;
      while (found == nullptr) found = leader->Find(name);
      EXPECT_NE(nullptr, found->waiting) << name;
    });
    EXPECT_OK(leader->OpenNamed(config, kTimeoutMs));
    finds.join();
  }
}

TEST_F(StoreTest, RankThatBuildsAnotherModelIsRefused) {
  auto leader = Create("job");
  ASSERT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  auto other = Attach("job", 1);
  ExpectError(other->OpenNamed(ConfigOf("item", 8), kTimeoutMs).status(),
              StatusCode::kInvalidArgument, {"'item'", "dim 4", "Received: dim=8"});
  TableConfig config = ConfigOf("item", 4);
  config.job_seed = 100;
  ExpectError(other->OpenNamed(config, kTimeoutMs).status(), StatusCode::kInvalidArgument,
              {"'item'", "seed"});
  config = ConfigOf("item", 4);
  config.initializer.b = 0.06;
  EXPECT_FALSE(other->OpenNamed(config, kTimeoutMs).ok());
  EXPECT_OK(other->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
}

TEST_F(StoreTest, DeathOfTheLeaderIsNoticed) {
  ChildProcess leader([&] {
    auto store = Create("job");
    ASSERT_OK(store->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
    store.release();
  });
  auto other = Attach("job", 1);
  auto table = other->OpenNamed(ConfigOf("item", 4), kTimeoutMs).Take();
  EXPECT_OK(other->CheckLeader());
  const std::string pid = "pid " + std::to_string(leader.pid());
  std::thread killer([&] { leader.Kill(); });
  const auto start = std::chrono::steady_clock::now();
  const Status status = table->reader->WaitVersion(1, [&] { return other->CheckLeader(); });
  const auto waited = std::chrono::steady_clock::now() - start;
  killer.join();
  ExpectError(status, StatusCode::kPeerDied, {"rank 0, " + pid, "Noticed by rank 1"});
  // The contract is a second; the rest is for a busy machine.
  EXPECT_LT(waited, std::chrono::seconds(5));
  ExpectError(other->OpenNamed(ConfigOf("late", 4), kTimeoutMs).status(), StatusCode::kPeerDied,
              {pid});
}

TEST_F(StoreTest, RankThatHasLeftIsNotCalledDead) {
  auto leader = Create("job");
  RunInChild([&] { Attach("job", 1); });
  const RankState left = leader->StateOf(1);
  EXPECT_EQ(HolderState::kLeft, left.state);
  ExpectError(leader->CheckRank(1), StatusCode::kPeerDied,
              {"has left the job: " + left.description});
  EXPECT_EQ(HolderState::kLiving, leader->StateOf(0).state);
}

TEST_F(StoreTest, LastToLeaveRemovesTheDirectory) {
  auto leader = Create("job");
  ASSERT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
  {
    ChildProcess member([&] { Attach("job", 1).release(); });
    leader.reset();
    EXPECT_TRUE(Exists("job"));
  }
  auto next = Create("job");
  EXPECT_EQ(1u, reclaimed_.size());
  next.reset();
  EXPECT_FALSE(Exists("job"));
}

TEST_F(StoreTest, ForkedChildThatEndsDoesNotRemoveTheStoreOfItsParent) {
  auto leader = Create("job");
  RunInChild([&] { leader.reset(); });
  EXPECT_TRUE(Exists("job"));
  RunInChild([&] { EXPECT_FALSE(CreateError("job").ok()); });
  EXPECT_OK(leader->OpenNamed(ConfigOf("item", 4), kTimeoutMs));
}

TEST_F(StoreTest, FullTmpfsIsAnErrorOfTheStoreToo) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=4k", [&] {
    std::ofstream(directory_.File("filler")) << std::string(4096, 'x');
    EXPECT_FALSE(CreateError("job").ok());
    std::filesystem::remove(directory_.File("filler"));
    std::filesystem::remove_all(DirectoryOf("job"));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(StoreTest, FiveHundredSmallTablesReserveLittle) {
  auto leader = Create("job");
  for (int i = 0; i < 500; ++i) {
    auto table = leader->OpenNamed(ConfigOf("table_" + std::to_string(i), 16), kTimeoutMs);
    ASSERT_OK(table);
    ASSERT_OK(table.value()->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
    const std::vector<float> rows(64 * 16);
    ASSERT_OK(WriteRows(table.value()->writer.get(), KeysBetween(0, 64), rows));
  }
  int64_t reserved = 0;
  for (const auto& entry : std::filesystem::directory_iterator(leader->directory())) {
    struct stat info;
    ASSERT_EQ(0, stat(entry.path().c_str(), &info));
    reserved += info.st_blocks * 512;
  }
  EXPECT_LT(reserved, int64_t{128} << 20);
  RecordProperty("bytes", std::to_string(reserved));
}

}  // namespace
}  // namespace tfhybrid::store_test
