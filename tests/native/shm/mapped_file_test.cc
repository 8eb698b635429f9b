#include "core/shm/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::mapped_file_test {
namespace {

constexpr int64_t kBytes = 3 * 4096;

void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class MappedFileTest : public testing::Test {
 protected:
  MappedFile Created(const std::string& name) {
    Result<MappedFile> file = MappedFile::Create(directory_.File(name), kBytes, "a test");
    EXPECT_OK(file);
    return file.Take();
  }
  Status OpenError(const std::string& name) {
    return MappedFile::OpenReadOnly(directory_.File(name)).status();
  }

  TemporaryDirectory directory_;
};

TEST_F(MappedFileTest, CreateReservesZeroedBytesForThisUserAlone) {
  const MappedFile file = Created("a");
  struct stat info;
  ASSERT_EQ(0, stat(directory_.File("a").c_str(), &info));
  EXPECT_EQ(kBytes, info.st_size);
  EXPECT_GE(info.st_blocks * 512, kBytes);
  EXPECT_EQ(0600u, info.st_mode & 07777);
  EXPECT_EQ(geteuid(), info.st_uid);
  EXPECT_TRUE(std::all_of(file.data(), file.data() + kBytes, [](uint8_t b) { return b == 0; }));
}

TEST_F(MappedFileTest, EveryByteIsReservedOfWhatHasHugePagesAndARest) {
  constexpr int64_t kOddBytes = (int64_t{7} << 20) + 3 * 4096 + 5;
  const std::string path = directory_.File("a");
  const Result<MappedFile> file = MappedFile::Create(path, kOddBytes, "a test");
  ASSERT_OK(file);
  struct stat info;
  ASSERT_EQ(0, stat(path.c_str(), &info));
  EXPECT_EQ(kOddBytes, info.st_size);
  EXPECT_GE(info.st_blocks * 512, kOddBytes);
  const uint8_t* data = file.value().data();
  EXPECT_TRUE(std::all_of(data, data + kOddBytes, [](uint8_t b) { return b == 0; }));
}

TEST_F(MappedFileTest, WhatTheWriterWritesTheReaderReads) {
  const MappedFile writer = Created("a");
  Result<MappedFile> reader = MappedFile::OpenReadOnly(directory_.File("a"));
  ASSERT_OK(reader);
  EXPECT_EQ(kBytes, reader.value().size());
  writer.mutable_data()[kBytes - 1] = 42;
  EXPECT_EQ(42, reader.value().data()[kBytes - 1]);
}

TEST_F(MappedFileTest, CreateIsExclusiveAndFollowsNoLink) {
  const MappedFile file = Created("a");
  ExpectError(MappedFile::Create(directory_.File("a"), kBytes, "a test").status(),
              StatusCode::kSystem, {directory_.File("a"), "exists"});
  ASSERT_EQ(0, symlink("nowhere", directory_.File("link").c_str()));
  EXPECT_FALSE(MappedFile::Create(directory_.File("link"), kBytes, "a test").ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.File("nowhere")));
}

TEST_F(MappedFileTest, ReadOnlyCannotBeMadeWritable) {
  const MappedFile writer = Created("a");
  Result<MappedFile> reader = MappedFile::OpenReadOnly(directory_.File("a"));
  ASSERT_OK(reader);
  EXPECT_EQ(-1, mprotect(reader.value().mutable_data(), kBytes, PROT_READ | PROT_WRITE));
  EXPECT_EQ(EACCES, errno);
}

TEST_F(MappedFileTest, WritableMappingStaysBehindInAFork) {
  const MappedFile writer = Created("a");
  Result<MappedFile> reader = MappedFile::OpenReadOnly(directory_.File("a"));
  ASSERT_OK(reader);
  RunInChild([&] {
    unsigned char resident[kBytes / 4096];
    EXPECT_EQ(-1, mincore(writer.mutable_data(), kBytes, resident));
    EXPECT_EQ(ENOMEM, errno);
    EXPECT_EQ(0, reader.value().data()[0]);
  });
}

// The child has no mapping there, but by then perhaps one of its own.
TEST_F(MappedFileTest, DestroyedInAForkLeavesTheAddressesAlone) {
  MappedFile file = Created("a");
  RunInChild([&] {
    uint8_t* address = file.mutable_data();
    void* own = mmap(address, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(address, own);
    { const MappedFile destroyed = std::move(file); }
    *address = 7;
    EXPECT_EQ(7, *address);
  });
  *file.mutable_data() = 8;
}

TEST_F(MappedFileTest, MovingHandsTheMappingOver) {
  MappedFile first = Created("a");
  uint8_t* data = first.mutable_data();
  MappedFile second(std::move(first));
  EXPECT_FALSE(first.mapped());  // NOLINT: the state after a move is part of the contract
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(data, third.mutable_data());
  data[0] = 1;
}

TEST_F(MappedFileTest, OpenRefusesWhatIsNotAFileOfThisUserAlone) {
  ExpectError(OpenError("missing"), StatusCode::kNotFound, {"missing"});
  Write(directory_.File("empty"), "");
  chmod(directory_.File("empty").c_str(), 0600);
  ExpectError(OpenError("empty"), StatusCode::kDataLoss, {"empty"});
  Created("a");
  ASSERT_EQ(0, symlink(directory_.File("a").c_str(), directory_.File("link").c_str()));
  ExpectError(OpenError("link"), StatusCode::kFailedPrecondition, {"link"});
  ASSERT_EQ(0, mkdir(directory_.File("directory").c_str(), 0700));
  ExpectError(OpenError("directory"), StatusCode::kFailedPrecondition, {"regular file"});
  ASSERT_EQ(0, mkfifo(directory_.File("fifo").c_str(), 0600));
  ExpectError(OpenError("fifo"), StatusCode::kFailedPrecondition, {"regular file"});
  chmod(directory_.File("a").c_str(), 0644);
  ExpectError(OpenError("a"), StatusCode::kFailedPrecondition, {"wanted", "Received", "644"});
}

TEST_F(MappedFileTest, OpenRefusesAnotherOwner) {
  if (geteuid() != 0) GTEST_SKIP() << "needs the right to give a file away (root)";
  Created("a");
  ASSERT_EQ(0, chown(directory_.File("a").c_str(), 12345, 0));
  ExpectError(OpenError("a"), StatusCode::kFailedPrecondition, {"owner 12345"});
}

TEST_F(MappedFileTest, InputIsARegularFileOfAnybody) {
  Write(directory_.File("data"), "abc");
  chmod(directory_.File("data").c_str(), 0644);
  Result<MappedFile> data = MappedFile::OpenInput(directory_.File("data"));
  ASSERT_OK(data);
  EXPECT_EQ(3, data.value().size());
  Write(directory_.File("empty"), "");
  Result<MappedFile> empty = MappedFile::OpenInput(directory_.File("empty"));
  ASSERT_OK(empty);
  EXPECT_FALSE(empty.value().mapped());
  EXPECT_EQ(0, empty.value().size());
  ASSERT_EQ(0, mkfifo(directory_.File("fifo").c_str(), 0600));
  for (const std::string& path : {directory_.path(), directory_.File("fifo")}) {
    ExpectError(MappedFile::OpenInput(path).status(), StatusCode::kInvalidArgument, {path});
  }
  ExpectError(MappedFile::OpenInput(directory_.File("missing")).status(), StatusCode::kNotFound,
              {"missing"});
}

TEST_F(MappedFileTest, FullFileSystemIsAnErrorThatLeavesNothing) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=1m", [&] {
    ExpectError(MappedFile::Create(directory_.File("big"), 2 << 20, "table 'item'").status(),
                StatusCode::kResourceExhausted,
                {"table 'item'", "wanted 2097152 bytes", "where 1048576 bytes are left",
                 "TFHYBRID_SHM_DIR"});
    EXPECT_FALSE(std::filesystem::exists(directory_.File("big")));
    const int64_t left = AvailableBytes(directory_.path());
    EXPECT_OK(MappedFile::Create(directory_.File("fits"), left, "a test"));
    EXPECT_EQ(0, AvailableBytes(directory_.path()));
    EXPECT_EQ(
        static_cast<int>(StatusCode::kResourceExhausted),
        static_cast<int>(MappedFile::Create(directory_.File("more"), 1, "a test").status().code()));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(MappedFileTest, TmpfsWithoutLimitHasRoom) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=0", [&] {
    EXPECT_OK(MappedFile::Create(directory_.File("a"), kBytes, "a test"));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(MappedFileTest, MemoryLimitOfAContainerComesFirstButPageCacheDoesNotCount) {
  const std::string cgroup = "/sys/fs/cgroup/";
  if (!std::filesystem::is_directory(cgroup)) GTEST_SKIP() << "needs " << cgroup;
  const std::string impossible = RunOnOwnTmpfs(cgroup, "size=1m", [&] {
    Write(cgroup + "memory.max", "1000000\n");
    Write(cgroup + "memory.current", "900000\n");
    EXPECT_EQ(100000, AvailableBytes(directory_.path()));
    Write(cgroup + "memory.stat",
          "anon 300000\nfile 600000\nactive_file 200000\n"
          "inactive_file 300000\nshmem 100000\n");
    EXPECT_EQ(600000, AvailableBytes(directory_.path()));
    ExpectError(MappedFile::Create(directory_.File("a"), 600001, "a test").status(),
                StatusCode::kResourceExhausted, {"where 600000 bytes"});
    Write(cgroup + "memory.max", "max\n");
    EXPECT_GT(AvailableBytes(directory_.path()), 600000);
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

void Ignore(int) {}

TEST_F(MappedFileTest, SignalsDoNotStopAReservation) {
  RunInChild([&] {
    struct sigaction action = {};
    action.sa_handler = Ignore;
    ASSERT_EQ(0, sigaction(SIGALRM, &action, nullptr));
    const itimerval every_millisecond = {{0, 1000}, {0, 1000}};
    ASSERT_EQ(0, setitimer(ITIMER_REAL, &every_millisecond, nullptr));
    EXPECT_OK(MappedFile::Create(directory_.File("a"), 64 << 20, "a test"));
  });
}

}  // namespace
}  // namespace tfhybrid::mapped_file_test
