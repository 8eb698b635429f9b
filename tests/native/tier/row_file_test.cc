#include "core/tier/row_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "tier/failing_calls.h"

namespace tfhybrid::row_file_test {
namespace {

class RowFileTest : public testing::Test {
 protected:
  static RowFile Create(const std::string& path, int64_t bytes) {
    auto made = RowFile::Create(path, bytes);
    EXPECT_OK(made);
    return made.Take();
  }
  const std::string path() const { return directory_.File("rows"); }
  static std::vector<uint8_t> Record(int64_t bytes, int64_t number) {
    std::vector<uint8_t> record(static_cast<size_t>(bytes));
    for (size_t i = 0; i < record.size(); ++i) record[i] = static_cast<uint8_t>(7 * i + number);
    return record;
  }

  const TemporaryDirectory directory_;
};

TEST_F(RowFileTest, RecordsOfEveryLengthAreReadAsTheyWereWritten) {
  for (const int64_t bytes : {4, 12, 64, 100, 2048, 2052, 4096, 4100, 20000}) {
    SCOPED_TRACE(bytes);
    const RowFile file = Create(path(), bytes);
    ASSERT_OK(file.Reserve(0, 50, "a test"));
    for (int64_t i = 49; i >= 0; --i) ASSERT_OK(file.Write(i, Record(bytes, i).data()));
    const auto reading = RowFile::OpenReadOnly(path(), bytes);
    ASSERT_OK(reading);
    std::vector<uint8_t> read(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < 50; ++i) {
      reading.value().Fetch(i);
      ASSERT_OK(reading.value().Read(i, read.data()));
      EXPECT_EQ(Record(bytes, i), read);
    }
    unlink(path().c_str());
  }
}

TEST_F(RowFileTest, ShortRecordsCrossNoPageAndLongOnesBeginOne) {
  EXPECT_EQ(4096, Create(path() + "a", 1000).BytesOf(4));
  EXPECT_EQ(8192, Create(path() + "b", 1000).BytesOf(5));
  EXPECT_EQ(16384, Create(path() + "c", 5000).BytesOf(2));
  EXPECT_EQ(0, Create(path() + "d", 5000).BytesOf(0));
}

TEST_F(RowFileTest, ReservesWhatItsRecordsNeed) {
  const RowFile file = Create(path(), 1000);
  ASSERT_OK(file.Reserve(0, 6, "a test"));
  struct stat info;
  ASSERT_EQ(0, stat(path().c_str(), &info));
  EXPECT_EQ(8192, info.st_size);
  EXPECT_LE(8192, info.st_blocks * 512);
  EXPECT_EQ(0600u, info.st_mode & 0777);
}

TEST_F(RowFileTest, FailingCallsAreNamed) {
  const RowFile file = Create(path(), 8);
  FailReservation(1, ENOSPC);
  ExpectError(file.Reserve(0, 9, "table 'x'"), StatusCode::kResourceExhausted,
              {"No room for table 'x'", path().c_str(), "No space left"});
  ASSERT_OK(file.Reserve(0, 9, "table 'x'"));
  uint64_t record = 5;
  FailWrite(1, EIO);
  ExpectError(file.Write(3, &record), StatusCode::kSystem,
              {"Cannot write record 3", path().c_str(), "Input/output error"});
  FailWrite(1, ENOSPC);
  ExpectError(file.Write(3, &record), StatusCode::kResourceExhausted, {"No space left"});
  FailRead(1, EIO);
  ExpectError(file.Read(3, &record), StatusCode::kSystem,
              {"Cannot read record 3", path().c_str(), "Input/output error"});
  FailRead(1, 0);
  ExpectError(file.Read(3, &record), StatusCode::kDataLoss, {"cut short", "record 3"});
  FailRead(1, EINTR);
  EXPECT_OK(file.Read(3, &record));
}

TEST_F(RowFileTest, OpensNoFileThatIsInTheWayAndNoLink) {
  Create(path(), 8);
  ExpectError(RowFile::Create(path(), 8).status(), StatusCode::kSystem, {"File exists"});
  ASSERT_EQ(0, symlink(path().c_str(), (path() + "-link").c_str()));
  ExpectError(RowFile::OpenReadOnly(path() + "-link", 8).status(), StatusCode::kSystem,
              {"symbolic links"});
  ExpectError(RowFile::OpenWritable(path() + "-none", 8).status(), StatusCode::kNotFound, {});
}

}  // namespace
}  // namespace tfhybrid::row_file_test
