#include "core/checkpoint/table_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/store/store.h"
#include "core/store/table_digest.h"
#include "core/store/table_loader.h"
#include "core/util/crc32c.h"
#include "shm/child_process.h"
#include "store/segment_files.h"
#include "store/table_fixture.h"

namespace tfhybrid::table_file_test {
namespace {

constexpr int64_t kDim = 4096;  // so that a full chunk has but 2,048 rows
constexpr int64_t kFileRows = 2048;
constexpr int64_t kRows = kFileRows + 70;

class TableFileTest : public TableFixture {
 protected:
  // A table of small numbers, Adam's state twice as much of them.
  std::shared_ptr<OpenTable> Filled(int64_t rows) {
    auto table = std::make_shared<OpenTable>();
    table->writer = Create(ConfigOf("t", kDim));
    EXPECT_OK(table->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
    const std::vector<int64_t> keys = KeysBetween(-5, rows - 5);
    std::vector<float> embeddings(static_cast<size_t>(rows * kDim));
    for (size_t i = 0; i < embeddings.size(); ++i) embeddings[i] = static_cast<float>(i % 1001);
    std::vector<float> states(embeddings.size() * 2, 0.25f);
    EXPECT_OK(TableLoader(table->writer.get())
                  .WriteRows(keys, embeddings.data(), states.data(), nullptr, RunInline));
    table->reader = Open("t");
    return table;
  }
  std::string Path(int64_t number) const {
    return directory_.File("file" + std::to_string(number));
  }
};

TEST_F(TableFileTest, FilesHoldAllRowsOnce) {
  const auto table = Filled(kRows);
  const auto frozen = table->writer->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  ASSERT_EQ(2, frozen.value()->parts());
  uint64_t digest = 0;
  for (int64_t number = 0; number < 2; ++number) {
    const auto file = WriteTableFile(frozen.value().get(), number, Path(number));
    ASSERT_OK(file);
    digest += file.value().digest;
    const int64_t rows = number == 0 ? kFileRows : kRows - kFileRows;
    EXPECT_EQ(rows, file.value().rows);
    const std::string content = ReadFile(Path(number));
    EXPECT_EQ(file.value().bytes, static_cast<int64_t>(content.size()));
    EXPECT_EQ(file.value().crc, Crc32c(content.data(), file.value().bytes));
    uint64_t length;
    std::memcpy(&length, content.data(), sizeof(length));
    EXPECT_EQ(0u, length % 8);
    const std::string header = content.substr(8, length);
    EXPECT_EQ(0u, header.find(R"({"keys":{"dtype":"I64","shape":[)" + std::to_string(rows) + "]"));
    EXPECT_NE(std::string::npos, header.find("[" + std::to_string(rows) + ",2,4096]"));
    int64_t key;
    std::memcpy(&key, content.data() + 8 + length, sizeof(key));
    EXPECT_EQ(number * kFileRows - 5, key);
    EXPECT_EQ(8 + length + static_cast<uint64_t>(rows) * (8 + 3 * 4 * kDim), content.size());
  }
  EXPECT_EQ(TableDigest(table.get()).value(), digest);
}

TEST_F(TableFileTest, DescribedIsWhatWouldBeWritten) {
  const auto table = Filled(kRows);
  const auto described = table->writer->snapshots().Freeze("test", false);
  ASSERT_OK(described);
  const auto wanted = DescribeTableFile(described.value().get(), 1);
  ASSERT_OK(wanted);
  table->writer->snapshots().Thaw();
  const auto frozen = table->writer->snapshots().Freeze("test", false);
  const auto written = WriteTableFile(frozen.value().get(), 1, Path(1));
  ASSERT_OK(written);
  EXPECT_EQ(wanted.value().rows, written.value().rows);
  EXPECT_EQ(wanted.value().bytes, written.value().bytes);
  EXPECT_EQ(wanted.value().digest, written.value().digest);
  EXPECT_EQ(wanted.value().crc, written.value().crc);
}

TEST_F(TableFileTest, EmptyTableHasNone) {
  const auto table = Filled(0);
  const auto frozen = table->writer->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  EXPECT_EQ(0, frozen.value()->parts());
  ExpectError(WriteTableFile(frozen.value().get(), 0, Path(0)).status(),
              StatusCode::kInvalidArgument, {"0 rows has 0 parts", "Received: 0"});
}

TEST_F(TableFileTest, WhatCannotBeWrittenIsNamed) {
  const auto table = Filled(3);
  const auto frozen = table->writer->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  const std::string nowhere = directory_.File("none/file");
  ExpectError(WriteTableFile(frozen.value().get(), 0, nowhere).status(), StatusCode::kSystem,
              {"Cannot write " + nowhere, "No such file"});
}

TEST_F(TableFileTest, FileThatIsNotCompleteIsRemoved) {
  RunInChild([&] {
    const auto table = Filled(3);
    const auto frozen = table->writer->snapshots().Freeze("test", false);
    ASSERT_OK(frozen);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {10000, 10000};
    ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
    const auto file = WriteTableFile(frozen.value().get(), 0, Path(0));
    ExpectError(file.status(), StatusCode::kSystem, {"Cannot write", "too large"});
  });
  EXPECT_FALSE(std::filesystem::exists(Path(0)));
}

}  // namespace
}  // namespace tfhybrid::table_file_test
