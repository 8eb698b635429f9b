#include "core/shm/liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/shm/mapped_file.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::liveness_test {
namespace {

class LivenessTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_.File("rank-0");
};

TEST_F(LivenessTest, HolderIsSeenFromAnotherProcessUntilItIsKilled) {
  LivenessLock lock;
  ChildProcess child([&] {
    Result<LivenessLock> acquired = LivenessLock::Acquire(path_, "rank 7, pid 17 on host a");
    ASSERT_OK(acquired);
    lock = acquired.Take();
  });
  EXPECT_TRUE(IsAlive(path_));
  EXPECT_EQ("rank 7, pid 17 on host a", DescribeHolder(path_));
  ExpectError(LivenessLock::Acquire(path_, "another").status(), StatusCode::kAlreadyExists,
              {path_, "rank 7, pid 17 on host a"});
  EXPECT_TRUE(IsAlive(path_));

  child.Kill();
  EXPECT_FALSE(IsAlive(path_));
  EXPECT_EQ("rank 7, pid 17 on host a", DescribeHolder(path_));
}

TEST_F(LivenessTest, FileOfADeadProcessIsTakenOver) {
  LivenessLock lock;
  ChildProcess child(
      [&] { lock = LivenessLock::Acquire(path_, "a very long description of the first").Take(); });
  child.Kill();
  Result<LivenessLock> acquired = LivenessLock::Acquire(path_, "second");
  ASSERT_OK(acquired);
  RunInChild([&] {
    acquired.value().Release();  // The child's copy of the parent's lock.
    EXPECT_EQ("second", DescribeHolder(path_));
  });
}

TEST_F(LivenessTest, AskingAboutTheOwnLockDoesNotDropIt) {
  Result<LivenessLock> lock = LivenessLock::Acquire(path_, "me");
  ASSERT_OK(lock);
  EXPECT_TRUE(IsAlive(path_));
  EXPECT_EQ("this process", DescribeHolder(path_));
  ExpectError(LivenessLock::Acquire(path_, "me again").status(), StatusCode::kAlreadyExists,
              {"this process"});
  RunInChild([&] {
    lock.value().Release();
    EXPECT_TRUE(IsAlive(path_));
  });
}

TEST_F(LivenessTest, ReleasedLockIsFree) {
  Result<LivenessLock> lock = LivenessLock::Acquire(path_, "me");
  ASSERT_OK(lock);
  lock.value().Release();
  EXPECT_FALSE(lock.value().held());
  EXPECT_FALSE(IsAlive(path_));
  EXPECT_OK(LivenessLock::Acquire(path_, "me again"));
}

TEST_F(LivenessTest, ForkedChildDoesNotKeepTheLockOfItsParent) {
  Result<LivenessLock> lock = LivenessLock::Acquire(path_, "me");
  ASSERT_OK(lock);
  ChildProcess child([] {});
  lock.value().Release();
  EXPECT_FALSE(IsAlive(path_));
}

TEST_F(LivenessTest, WhoLeavesInOrderIsToldFromWhoDies) {
  LivenessLock lock;
  const auto acquire = [&] { lock = LivenessLock::Acquire(path_, "rank 7").Take(); };
  {
    ChildProcess child(acquire);
    EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_));
  }
  EXPECT_EQ(HolderState::kDied, StateOfHolder(path_));
  RunInChild([&] {
    acquire();
    EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_));
    lock.Leave();
    EXPECT_FALSE(lock.held());
  });
  EXPECT_EQ(HolderState::kLeft, StateOfHolder(path_));
  EXPECT_EQ("rank 7", DescribeHolder(path_));
  ChildProcess next(acquire);
  EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_));
  next.Kill();
  EXPECT_EQ(HolderState::kDied, StateOfHolder(path_));
}

TEST_F(LivenessTest, ForkedChildDoesNotLeaveForItsParent) {
  LivenessLock lock = LivenessLock::Acquire(path_, "me").Take();
  RunInChild([&] { lock.Leave(); });
  RunInChild([&] { EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_)); });
  lock.Release();
  EXPECT_EQ(HolderState::kDied, StateOfHolder(path_));
}

TEST_F(LivenessTest, WhereItCannotBeToldTheHolderLives) {
  EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_));
  std::ofstream(path_).flush();
  EXPECT_EQ(HolderState::kLiving, StateOfHolder(path_));
}

TEST_F(LivenessTest, MovedLockIsHeldOnce) {
  LivenessLock first = LivenessLock::Acquire(path_, "me").Take();
  LivenessLock second(std::move(first));
  EXPECT_FALSE(first.held());  // NOLINT: the state after a move is part of the contract
  EXPECT_TRUE(second.held());
  EXPECT_TRUE(IsAlive(path_));
}

TEST_F(LivenessTest, NobodyHoldsAMissingFile) {
  EXPECT_FALSE(IsAlive(path_));
  EXPECT_EQ("an unknown process", DescribeHolder(path_));
  ExpectError(LivenessLock::Acquire(directory_.File("missing/rank-0"), "me").status(),
              StatusCode::kSystem, {"missing/rank-0"});
}

TEST_F(LivenessTest, WithoutADescriptorLeftTheHolderCountsAsAlive) {
  { LivenessLock lock = LivenessLock::Acquire(path_, "gone").Take(); }
  RunInChild([&] {
    const rlimit none = {0, 0};
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    EXPECT_TRUE(IsAlive(path_));
  });
}

TEST_F(LivenessTest, HostMutexLetsOneThroughAtATime) {
  const std::string mutex_path = directory_.File("lock");
  Result<MappedFile> page = MappedFile::Create(directory_.File("page"), 4096, "a test");
  ASSERT_OK(page);
  auto* inside = reinterpret_cast<std::atomic<int>*>(page.value().mutable_data());
  auto* passed = inside + 1;
  const auto pass = [&] {
    for (int i = 0; i < 200; ++i) {
      const HostMutex mutex(mutex_path);
      EXPECT_OK(mutex.status());
      EXPECT_EQ(0, inside->fetch_add(1));
      std::this_thread::yield();
      inside->fetch_sub(1);
      passed->fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(pass);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(600, passed->load());
}

TEST_F(LivenessTest, HostMutexHoldsBetweenProcessesAndEndsWithThem) {
  const std::string mutex_path = directory_.File("lock");
  ChildProcess child([&] { EXPECT_OK((new HostMutex(mutex_path))->status()); });
  const int fd = open(mutex_path.c_str(), O_RDWR);
  EXPECT_EQ(-1, flock(fd, LOCK_EX | LOCK_NB));
  child.Kill();
  EXPECT_EQ(0, flock(fd, LOCK_EX | LOCK_NB));
  close(fd);
}

TEST_F(LivenessTest, HostMutexIsNotKeptByAChildForkedMeanwhile) {
  const std::string mutex_path = directory_.File("lock");
  auto mutex = std::make_unique<HostMutex>(mutex_path);
  ChildProcess child([] {});
  mutex.reset();
  const int fd = open(mutex_path.c_str(), O_RDWR);
  EXPECT_EQ(0, flock(fd, LOCK_EX | LOCK_NB));
  close(fd);
}

TEST_F(LivenessTest, HostMutexDoesNotWaitForEverAndNamesTheHolder) {
  const std::string mutex_path = directory_.File("lock");
  const HostMutex held(mutex_path);
  const HostMutex late(mutex_path, 20);
  ExpectError(late.status(), StatusCode::kDeadlineExceeded,
              {"held for 20 ms", "process " + std::to_string(getpid())});
}

TEST_F(LivenessTest, HostMutexRefusesWhatOthersCouldHold) {
  const std::string open_to_all = directory_.File("open"), link = directory_.File("link"),
                    pipe = directory_.File("pipe");
  close(open(open_to_all.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(0, chmod(open_to_all.c_str(), 0666));
  ASSERT_EQ(0, symlink("open", link.c_str()));
  ASSERT_EQ(0, mkfifo(pipe.c_str(), 0600));
  for (const std::string& path : {open_to_all, link, pipe}) {
    const HostMutex mutex(path, 20);
    ExpectError(mutex.status(), StatusCode::kSystem, {path, "that nobody else may open"});
  }
}

TEST_F(LivenessTest, HostMutexOfAnotherUserIsRefusedByName) {
  if (geteuid() != 0) GTEST_SKIP() << "Only root can give a file to another user";
  const std::string mutex_path = directory_.File("lock");
  close(open(mutex_path.c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_EQ(0, chown(mutex_path.c_str(), 4321, 4321));
  ExpectError(HostMutex(mutex_path, 20).status(), StatusCode::kSystem, {"of user 4321"});
}

TEST_F(LivenessTest, HostMutexReportsAMissingDirectory) {
  const HostMutex mutex(directory_.File("missing/lock"));
  ExpectError(mutex.status(), StatusCode::kSystem, {"missing/lock"});
}

}  // namespace
}  // namespace tfhybrid::liveness_test
