#include "core/store/table_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/shm/mapped_file.h"
#include "core/util/counters.h"
#include "store/table_fixture.h"

namespace tfhybrid::table_reader_test {
namespace {

class TableReaderTest : public TableFixture {
 protected:
  // A table in memory, or one in files.
  TableConfig ConfigIn(bool in_files, int64_t dim) const {
    TableConfig config = ConfigOf(in_files ? "filed" : "item", dim);
    if (in_files) {
      config.files = directory_.path();
      config.cache_bytes = 1 << 20;
    }
    return config;
  }
};

TEST_F(TableReaderTest, UnseenKeysReadTheirInitialValue) {
  const Initializer initializers[] = {{InitializerKind::kZeros, 0, 0},
                                      {InitializerKind::kConstant, 0.25, 0},
                                      {InitializerKind::kUniform, -0.05, 0.05},
                                      {InitializerKind::kNormal, 0, 0.01},
                                      {InitializerKind::kTruncatedNormal, 1, 0.5}};
  const std::vector<int64_t> keys = {0, -1, 1, kMinKey, kMaxKey, 42, 42, 0};
  for (const Initializer& initializer : initializers) {
    const auto kind = static_cast<uint32_t>(initializer.kind);
    TableConfig config = ConfigOf("table" + std::to_string(kind), 5);
    config.initializer = initializer;
    const auto writer = Create(config);
    const auto reader = Open(config.name);
    EXPECT_EQ(InitialRows(config, keys), Lookup(reader.get(), keys)) << kind;
    EXPECT_EQ(0, reader->Stats().rows);
    ASSERT_OK(CreateRows(writer.get(), {0, -1, kMinKey, kMaxKey}));
    EXPECT_EQ(InitialRows(config, keys), Lookup(reader.get(), keys)) << kind;
    EXPECT_EQ(4, reader->Stats().rows);
  }
}

// With the marks and the count of both, in memory and in files, one by one and in bags.
TEST_F(TableReaderTest, UnseenKeysReadZerosOnRequest) {
  const std::vector<int64_t> keys = {7, -1, kMinKey, 42, 7, kMaxKey};
  const std::vector<uint8_t> marks = {1, 0, 0, 1, 1, 0};
  const std::vector<int64_t> splits = {0, 2, 2, 6};
  for (const bool in_files : {false, true}) {
    const TableConfig config = ConfigIn(in_files, 2);
    const auto writer = Create(config);
    const auto reader = Open(config.name);
    ASSERT_OK(WriteRows(writer.get(), {7, 42}, {1, 2, 4, 8}));
    writer->PublishUpdate(1, 0.5, 1.0f, kNoTime);
    std::vector<float> rows(12), bags(6);
    std::vector<uint8_t> has_row(6), has_row_in_bags(6);
    const int64_t read = CountOf(Counter::kKeysRead), unseen = CountOf(Counter::kUnseenKeys);
    ASSERT_OK(reader->Lookup(Span<const int64_t>(keys), rows.data(),
                             UnseenKeys{true, true, has_row.data()}));
    EXPECT_EQ(std::vector<float>({.5, 1, 0, 0, 0, 0, 2, 4, .5, 1, 0, 0}), rows);
    EXPECT_EQ(marks, has_row);
    const Bags combined = {Combiner::kMean, splits};
    ASSERT_OK(reader->LookupBags(Span<const int64_t>(keys), combined, 0, 3,
                                 RowCursor<float>(bags.data(), RowLayout::Array(2), 0),
                                 UnseenKeys{true, true, has_row_in_bags.data()}));
    EXPECT_EQ(std::vector<float>({.25, .5, 0, 0, .625, 1.25}), bags);
    EXPECT_EQ(marks, has_row_in_bags);
    EXPECT_EQ(read + 12, CountOf(Counter::kKeysRead));
    EXPECT_EQ(unseen + 6, CountOf(Counter::kUnseenKeys));
    // Initial values beside the marks, which are not counted.
    ASSERT_OK(reader->Lookup(Span<const int64_t>(keys), rows.data(),
                             UnseenKeys{false, false, has_row.data()}));
    EXPECT_EQ(Lookup(reader.get(), keys), rows);
    EXPECT_EQ(marks, has_row);
    EXPECT_EQ(read + 12, CountOf(Counter::kKeysRead));
  }
}

TEST_F(TableReaderTest, ShapeIsTheWriters) {
  const TableConfig config = ConfigOf("item", 7);
  const auto writer = Create(config);
  const auto reader = Open("item");
  EXPECT_EQ("item", reader->name());
  EXPECT_EQ(7, reader->dim());
  EXPECT_EQ(config.initializer.kind, reader->initializer().kind);
  EXPECT_EQ(-0.05, reader->initializer().a);
  EXPECT_EQ(TableSeed(99, "item", 4), reader->shape().seed);
}

TEST_F(TableReaderTest, LookupOfNoKeysIsOk) {
  const auto writer = Create(ConfigOf("item", 4));
  const auto reader = Open("item");
  EXPECT_OK(reader->Lookup(Span<const int64_t>(), nullptr));
}

TEST_F(TableReaderTest, OneKeyAHundredThousandTimesReadsItsRowEachTime) {
  const auto writer = Create(ConfigOf("item", 3));
  const std::vector<float> row = {1, 2, 3};
  ASSERT_OK(WriteRows(writer.get(), {-7}, row));
  const auto reader = Open("item");
  const std::vector<int64_t> keys(100000, -7);
  const std::vector<float> rows = Lookup(reader.get(), keys);
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(row[i % 3], rows[i]);
}

// Rows that were found once are read as if every key had been looked up: present, missing, decayed,
// in bags, and where a file holds them.
TEST_F(TableReaderTest, FoundRowsAreReadAsKeysAre) {
  const std::vector<int64_t> distinct = {kMinKey, -1, 5, 0, kMaxKey, 77};
  std::vector<int64_t> keys;
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < 1000; ++i) {
    numbers.push_back(i < 6 ? i : i * i % 6);
    keys.push_back(distinct[numbers.back()]);
  }
  const std::vector<int64_t> splits = {0, 0, 400, 401, 1000};
  for (const bool in_files : {false, true}) {
    const TableConfig config = ConfigIn(in_files, 5);
    const auto writer = Create(config);
    const auto reader = Open(config.name);
    ASSERT_OK(CreateRows(writer.get(), {-1, kMaxKey, 77}));
    for (const double decay : {1.0, 0.5}) {
      writer->PublishUpdate(writer->version() + 1, decay, 1.0f, kNoTime);
      const auto found = reader->Find(distinct, RunInline);
      ASSERT_OK(found);
      const LookupKeys all = {keys, numbers.data(), &found.value()};
      std::vector<float> rows(4000), bags(20), wanted_bags(20);
      ASSERT_OK(reader->Lookup(all.subspan(200, 800),
                               RowCursor<float>(rows.data(), RowLayout::Array(5), 0)));
      const std::vector<float> wanted = Lookup(reader.get(), keys);
      EXPECT_EQ(std::vector<float>(wanted.begin() + 1000, wanted.end()), rows);
      const Bags combined = {Combiner::kMean, splits};
      const auto to = [](std::vector<float>* out) {
        return RowCursor<float>(out->data(), RowLayout::Array(5), 0);
      };
      ASSERT_OK(reader->LookupBags(all, combined, 0, 4, to(&bags)));
      ASSERT_OK(reader->LookupBags(Span<const int64_t>(keys), combined, 0, 4, to(&wanted_bags)));
      EXPECT_EQ(wanted_bags, bags);
    }
  }
}

TEST_F(TableReaderTest, ReaderOpenedBeforeSeesEveryGrowth) {
  const auto writer = Create(ConfigOf("item", 8));
  const auto reader = Open("item");
  int64_t keys = 0;
  for (const int64_t batch : {1, 63, 64, 65, 1000, 10000, 30000}) {
    std::vector<int64_t> added;
    std::vector<float> rows;
    for (int64_t i = 0; i < batch; ++i, ++keys) {
      added.push_back(keys * 0x3779b97f4a7c);
      rows.insert(rows.end(), 8, static_cast<float>(keys));
    }
    ASSERT_OK(WriteRows(writer.get(), added, rows));
    ASSERT_EQ(rows, Lookup(reader.get(), added)) << keys;
  }
  EXPECT_EQ(keys, reader->Stats().rows);
  EXPECT_GE(reader->Stats().chunks, 10);
  const auto late = Open("item");
  EXPECT_EQ(std::vector<float>(8, 41192), Lookup(late.get(), {41192 * 0x3779b97f4a7c}));
}

TEST_F(TableReaderTest, ReadRowsGivesCreationOrderAcrossChunks) {
  const auto writer = Create(ConfigOf("item", 2));
  std::vector<int64_t> keys;
  std::vector<float> rows;
  for (int64_t i = 0; i < 500; ++i) {
    keys.push_back(1000 - i);
    rows.insert(rows.end(), 2, static_cast<float>(i));
  }
  ASSERT_OK(WriteRows(writer.get(), keys, rows));
  const auto reader = Open("item");
  std::vector<int64_t> read_keys(300);
  std::vector<float> read_rows(600);
  ASSERT_OK(reader->ReadRows(50, 300, read_keys.data(), read_rows.data()));
  EXPECT_EQ(std::vector<int64_t>(keys.begin() + 50, keys.begin() + 350), read_keys);
  EXPECT_EQ(std::vector<float>(rows.begin() + 100, rows.begin() + 700), read_rows);
  EXPECT_OK(reader->ReadRows(500, 0, nullptr, nullptr));
  const int64_t wrong[][2] = {{-1, 1}, {0, -1}, {0, 501}, {500, 1}, {1, kMaxKey}, {kMaxKey, 1}};
  for (const auto& [first, count] : wrong) {
    ExpectError(reader->ReadRows(first, count, nullptr, nullptr), StatusCode::kInvalidArgument,
                {"'item'", "500 rows", "Received: first=" + std::to_string(first)});
  }
}

TEST_F(TableReaderTest, StatsAreWhatTheFilesReserve) {
  const auto writer = Create(ConfigOf("item", 16));
  ASSERT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
  ASSERT_OK(CreateRows(writer.get(), KeysBetween(0, 3000)));
  const auto reader = Open("item");
  int64_t reserved = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    struct stat info;
    ASSERT_EQ(0, stat(entry.path().c_str(), &info));
    reserved += info.st_blocks * 512;
  }
  const TableStats stats = reader->Stats();
  EXPECT_EQ(3000, stats.rows);
  EXPECT_EQ(1, stats.version);
  EXPECT_EQ(4096, stats.index_slots);
  EXPECT_EQ(stats.bytes, stats.embedding_bytes + stats.state_bytes + stats.index_bytes + 4096);
  EXPECT_NEAR(static_cast<double>(reserved), static_cast<double>(stats.bytes),
              4096.0 * 3 * static_cast<double>(stats.chunks));
}

TEST_F(TableReaderTest, WaitVersionReturnsOncePublished) {
  const auto writer = Create(ConfigOf("item", 2));
  const auto reader = Open("item");
  EXPECT_TRUE(reader->Reached(0));
  EXPECT_FALSE(reader->Reached(1));
  std::thread waiter([&] {
    EXPECT_OK(reader->WaitVersion(3, [] { return Status::Ok(); }));
    EXPECT_GE(reader->version(), 3u);
  });
  for (int i = 0; i < 3; ++i) writer->PublishVersion(writer->version() + 1);
  waiter.join();
  EXPECT_TRUE(reader->Reached(3));
}

TEST_F(TableReaderTest, WaitVersionPassesOnThatTheLeaderDied) {
  const auto writer = Create(ConfigOf("item", 2));
  const auto reader = Open("item");
  const Status status = reader->WaitVersion(
      1, [] { return Status::Error(StatusCode::kPeerDied, "rank 0 has died"); });
  ExpectError(status, StatusCode::kPeerDied, {"rank 0 has died"});
}

TEST_F(TableReaderTest, WaitVersionPassesOnWhyTheLeaderCouldNot) {
  const auto writer = Create(ConfigOf("item", 2));
  const auto reader = Open("item");
  writer->PublishFailure(
      Status::Error(StatusCode::kResourceExhausted, "no room", std::string(1000, '!')));
  EXPECT_TRUE(reader->Reached(1));
  ExpectError(reader->WaitVersion(1, [] { return Status::Ok(); }), StatusCode::kResourceExhausted,
              {"'item'", "no room!!!"});
}

TEST_F(TableReaderTest, MissingTableIsNotFound) {
  ExpectError(TableReader::Open(directory_.path(), kToken, "item").status(), StatusCode::kNotFound,
              {"item"});
}

}  // namespace
}  // namespace tfhybrid::table_reader_test
