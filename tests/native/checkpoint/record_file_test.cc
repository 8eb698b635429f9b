#include "core/checkpoint/record_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "store/table_fixture.h"

namespace tfhybrid::record_file_test {
namespace {

constexpr int64_t kDim = 4;
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class RecordFileTest : public TableFixture {
 protected:
  void SetUp() override { writer_ = Create(ConfigOf("item", kDim)); }

  // A file of those keys, the embedding of the i-th being i, i + 0.25, i + 0.5, ...; gaps hold
  // junk.
  std::string Write(const RecordSchema& schema, const std::vector<int64_t>& keys) {
    std::string bytes(static_cast<size_t>(schema.header_bytes +
                                          schema.record_bytes * static_cast<int64_t>(keys.size())),
                      '\x7f');
    for (size_t i = 0; i < keys.size(); ++i) {
      char* record =
          bytes.data() + schema.header_bytes + schema.record_bytes * static_cast<int64_t>(i);
      const std::vector<float> row = Row(i);
      std::memcpy(record + schema.key_offset, &keys[i], sizeof(int64_t));
      std::memcpy(record + schema.embedding_offset, row.data(), kDim * sizeof(float));
    }
    const std::string path = directory_.File("records.bin");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::vector<float> Row(size_t i) {
    std::vector<float> row;
    for (int64_t c = 0; c < kDim; ++c)
      row.push_back(static_cast<float>(i) + 0.25f * static_cast<float>(c));
    return row;
  }
  Status LoadError(const std::string& path, const RecordSchema& schema) {
    return LoadRecordFile(path, schema, writer_.get(), RunInline).status();
  }

  std::unique_ptr<TableWriter> writer_;
};

TEST_F(RecordFileTest, AnyOrderPaddingAndHeaderIsRead) {
  const RecordSchema schemas[] = {
      {0, 24, 0, 8},     // packed
      {0, 24, 16, 0},    // embedding first
      {0, 40, 8, 20},    // padded everywhere
      {13, 27, 2, 11},   // nothing aligned
      {4096, 24, 0, 8},  // a page of header
  };
  const std::vector<int64_t> keys = {0, -1, 5, kMinKey, kMaxKey};
  for (size_t s = 0; s < std::size(schemas); ++s) {
    const std::string name = "table" + std::to_string(s);
    const auto writer = Create(ConfigOf(name, kDim));
    const auto loaded =
        LoadRecordFile(Write(schemas[s], keys), schemas[s], writer.get(), RunInline);
    ASSERT_OK(loaded);
    EXPECT_EQ(5, loaded.value());
    const auto reader = Open(name);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(Row(i), Lookup(reader.get(), {keys[i]})) << s;
    }
    EXPECT_EQ(InitialRows(ConfigOf(name, kDim), {6}), Lookup(reader.get(), {6}));
  }
}

TEST_F(RecordFileTest, ManyBlocksAreRead) {
  const RecordSchema schema = {8, 24, 0, 8};
  const std::vector<int64_t> keys = KeysBetween(-20000, 20001);
  const auto loaded = LoadRecordFile(Write(schema, keys), schema, writer_.get(), RunInline);
  ASSERT_OK(loaded);
  EXPECT_EQ(40001, writer_->rows());
  const auto reader = Open("item");
  for (const size_t i : {0, 16383, 16384, 32768, 40000}) {
    EXPECT_EQ(Row(i), Lookup(reader.get(), {keys[i]}));
  }
}

TEST_F(RecordFileTest, LoadedRowsHaveFreshState) {
  ASSERT_OK(writer_->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
  const RecordSchema schema = {0, 24, 0, 8};
  ASSERT_OK(LoadRecordFile(Write(schema, {1, 2}), schema, writer_.get(), RunInline));
  std::vector<float> states(2 * kDim);
  ASSERT_OK(writer_->chunks().ReadState(0, 2, states.data()));
  EXPECT_EQ(std::vector<float>(2 * kDim, 0.1f), states);
}

TEST_F(RecordFileTest, FileWithoutRecordsLoadsNothing) {
  for (const RecordSchema& schema : {RecordSchema{0, 24, 0, 8}, RecordSchema{16, 24, 0, 8}}) {
    const auto loaded = LoadRecordFile(Write(schema, {}), schema, writer_.get(), RunInline);
    ASSERT_OK(loaded);
    EXPECT_EQ(0, loaded.value());
  }
}

TEST_F(RecordFileTest, EmbeddingThatIsNotFiniteIsDamage) {
  const RecordSchema schema = {8, 24, 0, 8};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const auto writer = Create(ConfigOf("table" + std::to_string(bad), kDim));
    const std::string path = Write(schema, KeysBetween(0, 20000));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8 + 24 * 17000 + 8 + 4);
    file.write(reinterpret_cast<const char*>(&bad), sizeof(bad));
    file.close();
    ExpectError(LoadRecordFile(path, schema, writer.get(), RunInline).status(),
                StatusCode::kDataLoss,
                {path, "record 17000", "4 finite numbers of float32", "at index 1"});
    // A host that keeps no row of the file refuses it, too.
    const auto none = [](int64_t) { return false; };
    ExpectError(LoadRecordFile(path, schema, writer.get(), RunInline, none).status(),
                StatusCode::kDataLoss, {"record 17000"});
  }
}

TEST_F(RecordFileTest, CutShortIsDamageAndChangesNothing) {
  const RecordSchema schema = {16, 24, 0, 8};
  const std::string path = Write(schema, {1, 2, 3});
  for (const int64_t bytes : {87, 65, 63, 41, 15, 1, 0}) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
    ExpectError(LoadError(path, schema), StatusCode::kDataLoss,
                {path, "cut short", "Received: " + std::to_string(bytes) + " bytes"});
  }
  EXPECT_EQ(0, writer_->rows());
}

TEST_F(RecordFileTest, RepeatedKeyIsDamage) {
  const RecordSchema schema = {0, 24, 0, 8};
  std::string path = Write(schema, {1, 2, 1});
  ExpectError(LoadError(path, schema), StatusCode::kDataLoss,
              {path, "twice", "3 records", "2 rows"});
  // In another block, too, and what the table has already.
  std::vector<int64_t> keys = KeysBetween(100, 20100);
  keys.push_back(100);
  path = Write(schema, keys);
  ExpectError(LoadError(path, schema), StatusCode::kDataLoss, {"20001 records", "20000 rows"});
  ExpectError(LoadError(Write(schema, {2}), schema), StatusCode::kDataLoss, {"already"});
}

TEST_F(RecordFileTest, SchemaThatCannotHoldTheTableIsRefused) {
  const std::string path = Write({0, 24, 0, 8}, {1});
  const RecordSchema wrong[] = {
      {0, 0, 0, 0},     {0, 23, 0, 8},        {0, 24, 0, 7},      {0, 24, 4, 8},   {0, 24, 17, 0},
      {0, 24, 15, 0},   {-1, 24, 0, 8},       {0, 24, -8, 8},     {0, 24, 0, -16}, {0, 24, kMax, 8},
      {0, 24, 0, kMax}, {0, -kMax - 1, 0, 8}, {0, kMax, 0, kMax}, {0, 40, 4, 0},   {0, 40, 10, 12},
  };
  for (const RecordSchema& schema : wrong) {
    ExpectError(
        LoadError(path, schema), StatusCode::kInvalidArgument,
        {"embedding of 16 bytes", "Received: record of " + std::to_string(schema.record_bytes)});
  }
  // Another dim than the table's shows as a record that is too small.
  ExpectError(LoadError(path, {0, 16, 0, 8}), StatusCode::kInvalidArgument, {"16 bytes"});
  EXPECT_EQ(0, writer_->rows());
}

TEST_F(RecordFileTest, LargestNumbersDoNotOverflow) {
  const std::string path = Write({0, 24, 0, 8}, {1});
  ExpectError(LoadError(path, {kMax, 24, 0, 8}), StatusCode::kDataLoss, {"cut short"});
  ExpectError(LoadError(path, {0, kMax, kMax - 8, 0}), StatusCode::kDataLoss, {"cut short"});
}

TEST_F(RecordFileTest, MissingFileIsNotFound) {
  ExpectError(LoadError(directory_.File("missing"), {0, 24, 0, 8}), StatusCode::kNotFound,
              {"missing"});
  ExpectError(LoadError(directory_.path(), {0, 24, 0, 8}), StatusCode::kInvalidArgument,
              {"regular file"});
}

}  // namespace
}  // namespace tfhybrid::record_file_test
