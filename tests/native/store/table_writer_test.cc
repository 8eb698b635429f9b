#include "core/store/table_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compute/optimizer_configs.h"
#include "core/shm/mapped_file.h"
#include "core/store/table_loader.h"
#include "shm/child_process.h"
#include "store/table_fixture.h"

namespace tfhybrid::table_writer_test {
namespace {

using TableWriterTest = TableFixture;

// Where a failure comes with a full tmpfs, these are on a small one.
constexpr char kSmall[] = "size=1m";

// A table as plain arrays, updated by ApplyRow.
class PlainTable {
 public:
  PlainTable(const TableConfig& config, const OptimizerConfig& optimizer)
      : config_(config), optimizer_(optimizer) {}

  void Update(const std::vector<int64_t>& keys, const std::vector<float>& gradients, float scale,
              float learning_rate) {
    const OptimizerStep step = PrepareStep(optimizer_, learning_rate, ++version_);
    for (size_t i = 0; i < keys.size(); ++i) {
      auto [row, created] = rows_.try_emplace(keys[i]);
      if (created) {
        row->second.embedding = InitialRows(config_, {keys[i]});
        row->second.state.resize(static_cast<size_t>(StateFloats(optimizer_, config_.dim)));
        InitializeState(optimizer_, config_.dim, row->second.state.data());
      }
      ApplyRow(step, config_.dim, gradients.data() + i * static_cast<size_t>(config_.dim), scale,
               row->second.embedding.data(), row->second.state.data());
    }
  }

  struct Row {
    std::vector<float> embedding;
    std::vector<float> state;
  };
  const std::map<int64_t, Row>& rows() const { return rows_; }

 private:
  const TableConfig config_;
  const OptimizerConfig optimizer_;
  int64_t version_ = 0;
  std::map<int64_t, Row> rows_;
};

class TableOptimizerTest : public TableFixture, public testing::WithParamInterface<NamedOptimizer> {
 protected:
  // Every row, its state included, bit for bit.
  void ExpectEqual(const PlainTable& plain, TableReader* reader, const TableWriter& writer) {
    const int64_t rows = reader->Stats().rows;
    ASSERT_EQ(static_cast<int64_t>(plain.rows().size()), rows);
    const auto dim = static_cast<size_t>(reader->dim());
    const auto width = static_cast<size_t>(StateFloats(GetParam().config, reader->dim()));
    std::vector<int64_t> keys(static_cast<size_t>(rows));
    std::vector<float> embeddings(keys.size() * dim), states(keys.size() * width);
    ASSERT_OK(reader->ReadRows(0, rows, keys.data(), embeddings.data()));
    ASSERT_OK(writer.chunks().ReadState(0, rows, states.data()));
    EXPECT_EQ(embeddings, Lookup(reader, keys));
    for (size_t i = 0; i < keys.size(); ++i) {
      const PlainTable::Row& row = plain.rows().at(keys[i]);
      ASSERT_TRUE(
          std::equal(row.embedding.begin(), row.embedding.end(), embeddings.data() + i * dim));
      ASSERT_TRUE(std::equal(row.state.begin(), row.state.end(), states.data() + i * width));
    }
  }
};

TEST_P(TableOptimizerTest, UpdatesEqualApplyRowOnPlainArrays) {
  const TableConfig config = ConfigOf("item", 5);
  const auto writer = Create(config);
  ASSERT_OK(writer->SetOptimizer(GetParam().config));
  const auto reader = Open("item");
  PlainTable plain(config, GetParam().config);
  std::mt19937 random(3);
  std::vector<int64_t> universe = KeysBetween(-150, 150);
  universe.insert(universe.end(), {kMinKey, kMaxKey});
  for (int step = 0; step < 20; ++step) {
    std::shuffle(universe.begin(), universe.end(), random);
    const std::vector<int64_t> keys(universe.begin(), universe.begin() + step * 15);
    std::vector<float> gradients(keys.size() * 5);
    for (float& gradient : gradients) gradient = std::normal_distribution<float>()(random);
    ASSERT_OK(Update(writer.get(), keys, gradients, 0.5f, 0.1f));
    plain.Update(keys, gradients, 0.5f, 0.1f);
  }
  EXPECT_EQ(20u, reader->version());
  ExpectEqual(plain, reader.get(), *writer);
}

TEST_P(TableOptimizerTest, OptimizerSetAfterRowsExistGivesThemFreshState) {
  const TableConfig config = ConfigOf("item", 3);
  const auto writer = Create(config);
  const std::vector<int64_t> keys = KeysBetween(0, 1000);
  RowSet set;
  ASSERT_OK(writer->CreateMissing(keys, &set, RowStart::kInitial, RunInline));
  ASSERT_OK(writer->SetOptimizer(GetParam().config));
  const auto reader = Open("item");
  EXPECT_EQ(GetParam().config.kind, reader->optimizer().kind);
  PlainTable plain(config, GetParam().config);
  const std::vector<float> gradients(3000, 0.25f);
  ASSERT_OK(Update(writer.get(), keys, gradients, 1, 0.1f));
  plain.Update(keys, gradients, 1, 0.1f);
  ExpectEqual(plain, reader.get(), *writer);
}

TEST_P(TableOptimizerTest, ASecondOptimizerMustBeTheSame) {
  const auto writer = Create(ConfigOf("item", 3));
  ASSERT_OK(writer->SetOptimizer(GetParam().config));
  EXPECT_OK(writer->SetOptimizer(GetParam().config));
  OptimizerConfig other = GetParam().config;
  other.epsilon = 0.5f;
  ExpectError(writer->SetOptimizer(other), StatusCode::kFailedPrecondition, {"'item'"});
  EXPECT_TRUE(GetParam().config == writer->optimizer());
}

INSTANTIATE_TEST_SUITE_P(, TableOptimizerTest, testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param.name; });

TEST_F(TableWriterTest, RefusesImpossibleConfigs) {
  const auto error = [&](const TableConfig& config) {
    return TableWriter::Create(directory_.path(), kToken, config).status();
  };
  const auto invalid = StatusCode::kInvalidArgument;
  ExpectError(error(ConfigOf("", 4)), invalid, {"name", "Received"});
  ExpectError(error(ConfigOf(std::string(129, 'x'), 4)), invalid, {"128"});
  ExpectError(error(ConfigOf(std::string("a\0b", 3), 4)), invalid, {"zero"});
  ExpectError(error(ConfigOf("item", 0)), invalid, {"'item'", "Received: 0"});
  ExpectError(error(ConfigOf("item", -1)), invalid, {"Received: -1"});
  ExpectError(error(ConfigOf("item", 65537)), invalid, {"65536", "Received: 65537"});
  TableConfig config = ConfigOf("item", 4);
  config.initializer.b = std::numeric_limits<double>::quiet_NaN();
  ExpectError(error(config), invalid, {});
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(TableWriterTest, RefusesAnUnknownOptimizer) {
  const auto writer = Create(ConfigOf("item", 4));
  ExpectError(writer->SetOptimizer(OptimizerOf(static_cast<OptimizerKind>(99))),
              StatusCode::kInvalidArgument, {"99"});
  EXPECT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
}

TEST_F(TableWriterTest, TableOfTheSameNameExistsAlready) {
  const auto writer = Create(ConfigOf("item", 4));
  ExpectError(TableWriter::Create(directory_.path(), kToken, ConfigOf("item", 4)).status(),
              StatusCode::kAlreadyExists, {"'item'", "unique"});
}

TEST_F(TableWriterTest, AnyNameMakesATableOfItsOwn) {
  const std::string names[] = {"a/b",    "..",    ".",        "a.table",
                               "a",      "%41",   "A",        "store",
                               "rank-0", "a b\n", "\xc3\xa9", std::string(128, 'x')};
  std::vector<std::unique_ptr<TableWriter>> writers;
  float stamp = 0;
  for (const std::string& name : names) {
    writers.push_back(Create(ConfigOf(name, 1)));
    ASSERT_NE(nullptr, writers.back());
    ++stamp;
    ASSERT_OK(WriteRows(writers.back().get(), {1}, {stamp}));
  }
  stamp = 0;
  for (const std::string& name : names) {
    const auto reader = Open(name);
    EXPECT_EQ(name, reader->name());
    EXPECT_EQ(std::vector<float>{++stamp}, Lookup(reader.get(), {1})) << name;
  }
}

TEST_F(TableWriterTest, AnUpdateOfNoKeysCountsAsAVersion) {
  const auto writer = Create(ConfigOf("item", 4));
  ASSERT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
  ASSERT_OK(Update(writer.get(), {}, {}, 1, 0.1f));
  EXPECT_EQ(1u, writer->version());
  EXPECT_EQ(0, writer->rows());
  EXPECT_EQ(0, Open("item")->Stats().chunks);
}

TEST_F(TableWriterTest, LastOfEqualKeysIsWritten) {
  const auto writer = Create(ConfigOf("item", 1));
  ASSERT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
  const std::vector<int64_t> keys = {5, 6, 5, 7, 5, 6};
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<float> states = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
  ASSERT_OK(
      TableLoader(writer.get()).WriteRows(keys, rows.data(), states.data(), nullptr, RunInline));
  EXPECT_EQ(3, writer->rows());
  EXPECT_EQ((std::vector<float>{5, 6, 4}), Lookup(Open("item").get(), {5, 6, 7}));
  std::vector<float> read(6);
  ASSERT_OK(writer->chunks().ReadState(0, 3, read.data()));
  EXPECT_EQ((std::vector<float>{5, 5, 6, 6, 4, 4}), read);

  // Without states the rows start afresh.
  ASSERT_OK(WriteRows(writer.get(), {6}, {rows[0]}));
  ASSERT_OK(writer->chunks().ReadState(1, 1, read.data()));
  EXPECT_EQ((std::vector<float>{0, 0, 6, 6, 4, 4}), read);
}

TEST_F(TableWriterTest, BlocksOfAnyKeysAreWrittenWhileTheTableGrows) {
  const auto writer = Create(ConfigOf("item", 1));
  std::mt19937_64 random(1);
  std::map<int64_t, float> model;
  for (int block = 1; block <= 4; ++block) {
    std::vector<int64_t> keys = {std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max(), 0, -1};
    while (keys.size() < 20000) keys.push_back(static_cast<int64_t>(random() % 15000) * block);
    std::vector<float> rows;
    for (const int64_t key : keys) {
      rows.push_back(static_cast<float>(random() % 1000));
      model[key] = rows.back();
    }
    ASSERT_OK(WriteRows(writer.get(), keys, rows));
    ASSERT_EQ(static_cast<int64_t>(model.size()), writer->rows());
  }
  std::vector<int64_t> keys;
  std::vector<float> rows;
  for (const auto& [key, row] : model) {
    keys.push_back(key);
    rows.push_back(row);
  }
  EXPECT_EQ(rows, Lookup(Open("item").get(), keys));
}

TEST_F(TableWriterTest, ReadStateRefusesRowsThatAreNotThere) {
  const auto writer = Create(ConfigOf("item", 1));
  ASSERT_OK(CreateRows(writer.get(), {1, 2}));
  const int64_t wrong[][2] = {{-1, 1}, {0, -1}, {0, 3}, {2, 1}, {1, kMaxKey}, {kMaxKey, 1}};
  for (const auto& [first, count] : wrong) {
    ExpectError(writer->chunks().ReadState(first, count, nullptr), StatusCode::kInvalidArgument,
                {"2 rows", "Received: first=" + std::to_string(first)});
  }
}

TEST_F(TableWriterTest, ClearedTableReadsInitialValuesAndGrowsAgain) {
  const TableConfig config = ConfigOf("item", 2);
  const auto writer = Create(config);
  const auto reader = Open("item");
  const std::vector<int64_t> keys = KeysBetween(0, 1000);
  const std::vector<float> rows(2000, 7.0f);
  ASSERT_OK(WriteRows(writer.get(), keys, rows));
  EXPECT_EQ(rows, Lookup(reader.get(), keys));
  ASSERT_OK(TableLoader(writer.get()).Clear());
  EXPECT_EQ(0, reader->Stats().rows);
  EXPECT_EQ(InitialRows(config, keys), Lookup(reader.get(), keys));
  ASSERT_OK(CreateRows(writer.get(), KeysBetween(500, 1500)));
  EXPECT_EQ(1000, reader->Stats().rows);
  EXPECT_EQ(InitialRows(config, keys), Lookup(reader.get(), keys));
}

TEST_F(TableWriterTest, RowsAreMadeByAnyNumberOfThreads) {
  const ParallelFor two_threads = [](int64_t total, int64_t,
                                     const std::function<void(int64_t, int64_t)>& work) {
    std::thread other([&] { work(0, total / 2); });
    work(total / 2, total);
    other.join();
  };
  const TableConfig config = ConfigOf("item", 4);
  const auto writer = Create(config);
  const std::vector<int64_t> keys = KeysBetween(0, 5000);
  RowSet set;
  ASSERT_OK(writer->CreateMissing(keys, &set, RowStart::kInitial, two_threads));
  const auto reader = Open("item");
  EXPECT_EQ(InitialRows(config, keys), Lookup(reader.get(), keys));
  std::vector<int64_t> read(5000);
  std::vector<float> rows(20000);
  ASSERT_OK(reader->ReadRows(0, 5000, read.data(), rows.data()));
  EXPECT_EQ(keys, read);
}

TEST_F(TableWriterTest, FullTmpfsLeavesTheTableAsItWasAndNamesIt) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), kSmall, [&] {
    const TableConfig config = ConfigOf("item", 16);
    const auto writer = Create(config);
    ASSERT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    const auto reader = Open("item");
    const std::vector<int64_t> keys = KeysBetween(0, 2000);
    const std::vector<float> gradients(32000, 0.5f);
    ASSERT_OK(Update(writer.get(), keys, gradients, 1, 0.1f));
    const std::vector<float> before = Lookup(reader.get(), keys);
    const std::vector<int64_t> too_many = KeysBetween(-20000, 2000);

    for (int attempt = 0; attempt < 2; ++attempt) {
      RowSet set;
      const Status full = writer->CreateMissing(too_many, &set, RowStart::kInitial, RunInline);
      ExpectError(full, StatusCode::kResourceExhausted,
                  {"table 'item'", "wanted ", " bytes are left"});
      EXPECT_EQ(2000, reader->Stats().rows);
      EXPECT_EQ(1u, reader->version());
      EXPECT_EQ(before, Lookup(reader.get(), keys));
    }
    EXPECT_OK(Update(writer.get(), keys, gradients, 1, 0.1f));
    EXPECT_NE(before, Lookup(reader.get(), keys));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(TableWriterTest, OptimizerThatFindsNoRoomCanBeSetLater) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), kSmall, [&] {
    const TableConfig config = ConfigOf("item", 16);
    const auto writer = Create(config);
    ASSERT_OK(CreateRows(writer.get(), KeysBetween(0, 4000)));
    const int64_t room = AvailableBytes(directory_.path());
    {
      auto filler = MappedFile::Create(directory_.File("filler"), room - 65536, "a test");
      ASSERT_OK(filler);
      ExpectError(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)),
                  StatusCode::kResourceExhausted, {"table 'item'", "optimizer state"});
      EXPECT_EQ(65536, AvailableBytes(directory_.path()));
    }
    std::filesystem::remove(directory_.File("filler"));
    ASSERT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    EXPECT_OK(Update(writer.get(), {1, 3999}, std::vector<float>(32, 1.0f), 1, 0.1f));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(TableWriterTest, ClearThatFindsNoRoomLeavesTheTableAsItWas) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), kSmall, [&] {
    const auto writer = Create(ConfigOf("item", 2));
    const std::vector<float> rows(20, 7.0f);
    ASSERT_OK(WriteRows(writer.get(), KeysBetween(0, 10), rows));
    const int64_t room = AvailableBytes(directory_.path());
    ASSERT_OK(MappedFile::Create(directory_.File("filler"), room, "a test"));
    ExpectError(TableLoader(writer.get()).Clear(), StatusCode::kResourceExhausted,
                {"table 'item'"});
    EXPECT_EQ(rows, Lookup(Open("item").get(), KeysBetween(0, 10)));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(TableWriterTest, TableThatFindsNoRoomLeavesNothing) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=4k", [&] {
    ExpectError(TableWriter::Create(directory_.path(), kToken, ConfigOf("item", 2)).status(),
                StatusCode::kResourceExhausted, {"table 'item'"});
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

// A step of training is a version: what it wrote is stamped with its key, and whoever has seen the
// version must read the stamps, whatever the table does for later versions meanwhile.
TEST_F(TableWriterTest, ReadersNeverSeeAForeignRowWhileTheTableGrows) {
  constexpr int64_t kSteps = 150, kStepKeys = 400, kDim = 8;
  const TableConfig config = ConfigOf("item", kDim);
  const auto writer = Create(config);
  std::atomic<int64_t> reads{0};
  std::vector<std::thread> readers;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    readers.emplace_back([&, seed] {
      const auto reader = Open("item");
      std::mt19937_64 random(seed);
      int64_t wrong = 0;
      std::vector<int64_t> keys(512);
      for (int64_t version = 0, turn = 0; version < kSteps || turn < 500; ++turn) {
        version = static_cast<int64_t>(reader->version());
        // Half of them written, half of them never to be.
        const int64_t written = std::max<int64_t>(1, version * kStepKeys);
        for (size_t i = 0; i < keys.size(); ++i) {
          keys[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(written));
          if (i % 2 == 1 || version == 0) keys[i] = -1 - keys[i];
        }
        const std::vector<float> rows = Lookup(reader.get(), keys);
        const std::vector<float> initial = InitialRows(config, keys);
        for (size_t i = 0; i < rows.size(); ++i) {
          const int64_t key = keys[i / kDim];
          wrong += rows[i] != (key < 0 ? initial[i] : static_cast<float>(key));
        }
        reads += static_cast<int64_t>(keys.size());
      }
      EXPECT_EQ(0, wrong);
    });
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<int64_t> keys = KeysBetween(step * kStepKeys, (step + 1) * kStepKeys);
    std::vector<float> rows;
    for (const int64_t key : keys) rows.insert(rows.end(), kDim, static_cast<float>(key));
    EXPECT_OK(WriteRows(writer.get(), keys, rows));
    writer->PublishVersion(writer->version() + 1);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GE(reads.load(), 512000);
}

}  // namespace
}  // namespace tfhybrid::table_writer_test
