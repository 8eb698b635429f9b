// Tables whose rows lie in files: the same bits as in memory, with a cache of any size; and what a
// bad disk does to them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/worker_threads.h"
#include "core/store/store.h"
#include "core/store/store_files.h"
#include "core/store/table_digest.h"
#include "core/store/table_loader.h"
#include "store/table_fixture.h"
#include "tier/failing_calls.h"

namespace tfhybrid::table_tier_test {
namespace {

constexpr int64_t kDim = 6;
constexpr int64_t kSlotBytes = 16 + 2 * 4 * kDim;  // with Adagrad

class TableTierTest : public TableFixture {
 protected:
  TableConfig FileConfig(const std::string& name, int64_t slots) const {
    TableConfig config = ConfigOf(name, kDim);
    config.files = directory_.path();
    config.cache_bytes = slots * kSlotBytes;
    return config;
  }
  std::unique_ptr<TableWriter> CreateTrained(const TableConfig& config) {
    auto writer = Create(config);
    EXPECT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    return writer;
  }
  // As an update does: brings the rows of the keys, makes the missing, and changes all.
  static Status Change(TableWriter* writer, const std::vector<int64_t>& keys, float by) {
    RowSet set;
    TFHYBRID_RETURN_IF_ERROR(writer->CreateMissing(keys, &set, RowStart::kInitial, RunInline));
    for (const int64_t number : set.rows) {
      const TableRow row = writer->chunks().Row(number);
      writer->snapshots().BeforeChange(number, row);
      for (int64_t i = 0; i < row.dim; ++i) row.embedding[i] += by * static_cast<float>(i + 1);
      for (int64_t i = 0; i < row.state_floats; ++i) row.state[i] -= by;
    }
    writer->PublishVersion(writer->version() + 1);
    return Status::Ok();
  }
  // Both tables hold the same bits.
  void ExpectEqualTables(TableWriter* in_files, TableWriter* in_memory) {
    const int64_t rows = in_memory->rows();
    ASSERT_EQ(rows, in_files->rows());
    const auto numbers = static_cast<size_t>(rows * kDim);
    struct {
      std::vector<int64_t> keys;
      std::vector<float> embeddings, states;
    } read[2];
    TableWriter* const writers[] = {in_files, in_memory};
    for (int which = 0; which < 2; ++which) {
      read[which] = {std::vector<int64_t>(static_cast<size_t>(rows)), std::vector<float>(numbers),
                     std::vector<float>(numbers)};
      const auto reader = Open(writers[which]->name());
      ASSERT_OK(reader->ReadRows(0, rows, read[which].keys.data(), read[which].embeddings.data()));
      ASSERT_OK(writers[which]->chunks().ReadState(0, rows, read[which].states.data()));
      EXPECT_EQ(read[which].embeddings, Lookup(reader.get(), read[which].keys));
    }
    EXPECT_EQ(read[1].keys, read[0].keys);
    EXPECT_EQ(read[1].embeddings, read[0].embeddings);
    EXPECT_EQ(read[1].states, read[0].states);
  }
  void ExpectEqualFrozen(FrozenTable* in_files, FrozenTable* in_memory) {
    const int64_t rows = in_memory->table_rows();
    ASSERT_EQ(rows, in_files->table_rows());
    const auto count = static_cast<size_t>(rows);
    struct {
      std::vector<int64_t> keys;
      std::vector<float> embeddings, states;
    } read[2];
    FrozenTable* const tables[] = {in_files, in_memory};
    for (int which = 0; which < 2; ++which) {
      read[which] = {std::vector<int64_t>(count), std::vector<float>(count * kDim),
                     std::vector<float>(count * kDim)};
      std::vector<RowHistory> histories(count);
      ASSERT_EQ(1, tables[which]->parts());
      ASSERT_OK(tables[which]->Read(0, {read[which].keys.data(), read[which].embeddings.data(),
                                        read[which].states.data(), histories.data()}));
    }
    EXPECT_EQ(read[1].keys, read[0].keys);
    EXPECT_EQ(read[1].embeddings, read[0].embeddings);
    EXPECT_EQ(read[1].states, read[0].states);
  }
  void SpoilRecord(const std::string& name, int64_t number) const {
    std::fstream file(RowsPath(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(number * 2 * 4 * kDim);
    file.put(77);
  }
  std::string RowsPath(const std::string& name, int generation = 1) const {
    return TierRows(TierDirectory(directory_.path(), directory_.path(), kToken, name),
                    static_cast<uint64_t>(generation));
  }
};

// Batches that come back to older keys, and bring new ones.
std::vector<int64_t> BatchOf(int64_t step) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < 20; ++i) keys.push_back((step * 13 + i * (1 + step % 3)) % 300 - 150);
  return keys;
}

TEST_F(TableTierTest, EveryCacheThatHoldsABatchGivesTheBitsOfMemory) {
  for (const int64_t slots : {20, 21, 33, 100, 1000}) {
    SCOPED_TRACE(slots);
    const std::string suffix = std::to_string(slots);
    TableConfig memory = ConfigOf("memory" + suffix, kDim);
    TableConfig files = FileConfig("files" + suffix, slots);
    memory.initializer.kind = files.initializer.kind = InitializerKind::kZeros;
    const auto in_memory = CreateTrained(memory);
    const auto in_files = CreateTrained(files);
    for (int64_t step = 0; step < 60; ++step) {
      ASSERT_OK(Change(in_memory.get(), BatchOf(step), 0.1f * static_cast<float>(step)));
      ASSERT_OK(Change(in_files.get(), BatchOf(step), 0.1f * static_cast<float>(step)));
    }
    ExpectEqualTables(in_files.get(), in_memory.get());
    const TableStats stats = Open(files.name)->Stats();
    EXPECT_GT(stats.file_bytes, 0);
    EXPECT_EQ(slots >= 300, stats.cache_misses == 0);
    EXPECT_EQ(slots >= 300, stats.written_rows == 0);
    EXPECT_GT(stats.cache_hits, 0);
  }
}

TEST_F(TableTierTest, AnUpdateThatDoesNotFitChangesNothing) {
  const auto writer = CreateTrained(FileConfig("t", 10));
  ASSERT_OK(Change(writer.get(), KeysBetween(0, 10), 1));
  const auto before = Lookup(Open("t").get(), KeysBetween(0, 20));
  ExpectError(Change(writer.get(), KeysBetween(5, 16), 1), StatusCode::kResourceExhausted,
              {"Table 't'", "11 rows of one update", "cache_bytes"});
  EXPECT_EQ(10, writer->rows());
  EXPECT_EQ(before, Lookup(Open("t").get(), KeysBetween(0, 20)));
  ASSERT_OK(Change(writer.get(), KeysBetween(5, 15), 1));
}

TEST_F(TableTierTest, LoadsMoreRowsThanTheCacheHolds) {
  const auto writer = CreateTrained(FileConfig("t", 7));
  std::vector<int64_t> keys = KeysBetween(0, 50);
  keys.push_back(3);  // the last of equal keys wins, in another block
  std::vector<float> rows(keys.size() * kDim);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  ASSERT_OK(WriteRows(writer.get(), keys, rows));
  std::copy(rows.end() - kDim, rows.end(), rows.begin() + 3 * kDim);
  EXPECT_EQ(rows, Lookup(Open("t").get(), keys));
}

TEST_F(TableTierTest, ATableThatIsClearedBeginsAnew) {
  const auto writer = CreateTrained(FileConfig("t", 20));
  const auto reader = Open("t");
  for (int64_t step = 0; step < 9; ++step) ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
  ASSERT_OK(TableLoader(writer.get()).Clear());
  EXPECT_NE(0, access(RowsPath("t").c_str(), F_OK));
  EXPECT_EQ(InitialRows(ConfigOf("t", kDim), BatchOf(3)), Lookup(reader.get(), BatchOf(3)));
  ASSERT_OK(Change(writer.get(), BatchOf(1), 0));
  const auto initial = InitialRows(ConfigOf("t", kDim), BatchOf(1));
  EXPECT_EQ(initial, Lookup(reader.get(), BatchOf(1)));
  EXPECT_EQ(0, access(RowsPath("t", 2).c_str(), F_OK));
}

TEST_F(TableTierTest, WhatIsFrozenIsReadAsItWas) {
  const auto writer = CreateTrained(FileConfig("t", 20));
  for (int64_t step = 0; step < 20; ++step) ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
  const int64_t rows = writer->rows();
  std::vector<int64_t> keys(static_cast<size_t>(rows)), wanted_keys(keys.size());
  std::vector<float> wanted(keys.size() * kDim), wanted_states(wanted.size());
  std::vector<float> embeddings(wanted.size()), states(wanted.size());
  ASSERT_OK(Open("t")->ReadRows(0, rows, wanted_keys.data(), wanted.data()));
  ASSERT_OK(writer->chunks().ReadState(0, rows, wanted_states.data()));
  const auto frozen = writer->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  for (int64_t step = 10; step < 40; ++step) ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
  ASSERT_EQ(1, frozen.value()->parts());
  ASSERT_OK(frozen.value()->Read(0, {keys.data(), embeddings.data(), states.data(), nullptr}));
  EXPECT_EQ(wanted_keys, keys);
  EXPECT_EQ(wanted, embeddings);
  EXPECT_EQ(wanted_states, states);
}

TEST_F(TableTierTest, ANewLeaderGoesOnFromCacheAndFile) {
  TableConfig memory = ConfigOf("memory", kDim), files = FileConfig("t", 25);
  memory.initializer.kind = files.initializer.kind = InitializerKind::kZeros;
  auto writer = CreateTrained(files);
  const auto in_memory = CreateTrained(memory);
  for (int64_t step = 0; step < 20; ++step) {
    ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
    ASSERT_OK(Change(in_memory.get(), BatchOf(step), 1));
    if (step % 7 != 3) continue;
    writer = nullptr;
    auto attached = TableWriter::Attach(directory_.path(), kToken, "t");
    ASSERT_OK(attached);
    writer = attached.Take();
    ExpectEqualTables(writer.get(), in_memory.get());
  }
}

// Every call that may fail, does; then the same update is made again.
TEST_F(TableTierTest, AFailingDiskLosesNothing) {
  const auto in_memory = CreateTrained(ConfigOf("memory", kDim));
  const auto writer = CreateTrained(FileConfig("t", 20));
  // Tables of different names have different initial values.
  const std::vector<int64_t> keys = KeysBetween(-150, 150);
  const std::vector<float> rows(keys.size() * kDim, 0.5f);
  ASSERT_OK(WriteRows(in_memory.get(), keys, rows));
  ASSERT_OK(WriteRows(writer.get(), keys, rows));
  void (*const failures[])(int64_t, int) = {FailRead, FailWrite};
  for (int64_t step = 0; step < 30; ++step) {
    for (const auto fail : failures) {
      for (int64_t number = 1;; number += 3) {
        fail(number, number % 2 == 0 ? EIO : ENOSPC);
        const Status status = Change(writer.get(), BatchOf(step), 0);
        fail(0, 0);
        if (status.ok()) break;
        EXPECT_NE(std::string::npos, status.message().find("Table 't'")) << status.message();
        EXPECT_NE(std::string::npos, status.message().find("rows.1")) << status.message();
      }
    }
    ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
    ASSERT_OK(Change(in_memory.get(), BatchOf(step), 1));
  }
  ExpectEqualTables(writer.get(), in_memory.get());
}

TEST_F(TableTierTest, AFullDiskIsSaidBeforeAnythingChanges) {
  const auto writer = CreateTrained(FileConfig("t", 200));
  ASSERT_OK(Change(writer.get(), KeysBetween(0, 64), 1));
  // The first reservation is that of the chunk in shared memory.
  for (int64_t call = 1; call <= 2; ++call) {
    FailReservation(call, ENOSPC);
    ExpectError(Change(writer.get(), KeysBetween(60, 100), 1), StatusCode::kResourceExhausted,
                {"table 't', rows 64 to 127"});
    FailReservation(0, 0);
    EXPECT_EQ(64, writer->rows());
  }
  ASSERT_OK(Change(writer.get(), KeysBetween(60, 100), 1));
  EXPECT_EQ(100, writer->rows());
}

TEST_F(TableTierTest, ARecordThatChangedOnTheDiskIsNoticed) {
  const auto writer = CreateTrained(FileConfig("t", 10));
  ASSERT_OK(Change(writer.get(), KeysBetween(0, 10), 1));
  ASSERT_OK(Change(writer.get(), KeysBetween(10, 20), 1));
  SpoilRecord("t", 3);
  const auto reader = Open("t");
  std::vector<float> row(kDim);
  const std::vector<int64_t> bad = {3}, good = {4};
  ExpectError(reader->Lookup(bad, row.data()), StatusCode::kDataLoss,
              {"Record 3 of ", RowsPath("t").c_str(), "checksum"});
  EXPECT_OK(reader->Lookup(good, row.data()));
  ExpectError(Change(writer.get(), bad, 1), StatusCode::kDataLoss, {"Table 't'", "Record 3"});
  EXPECT_OK(Change(writer.get(), good, 1));
}

// Rows in the cache and in the file, in an order that moves cached and stored ones, while a
// checkpoint reads.
TEST_F(TableTierTest, RowsThatAreRemovedLeaveTheirRecordsToOthers) {
  TableConfig memory = ConfigOf("memory", kDim), files = FileConfig("t", 20);
  memory.initializer.kind = files.initializer.kind = InitializerKind::kZeros;
  memory.policy.kind = files.policy.kind = PolicyKind::kRows;
  const auto in_memory = CreateTrained(memory);
  auto writer = CreateTrained(files);
  int64_t file_bytes = 0;
  for (int64_t step = 0; step < 90; ++step) {
    std::shared_ptr<FrozenTable> frozen[2];
    TableWriter* const writers[] = {writer.get(), in_memory.get()};
    for (int which = 0; which < 2; ++which) {
      TableWriter* const its = writers[which];
      ASSERT_OK(Change(its, BatchOf(step), 1));
      const auto made = its->snapshots().Freeze("test", false);
      ASSERT_OK(made);
      frozen[which] = made.value();
      std::vector<int64_t> going;
      for (int64_t row = step % 3; row < its->rows(); row += 7) going.push_back(row);
      its->removal().Remove(going);
      ASSERT_OK(Change(its, BatchOf(step * 5 + 1), 2));
    }
    ExpectEqualFrozen(frozen[0].get(), frozen[1].get());
    for (TableWriter* its : writers) its->snapshots().Thaw();
    ExpectEqualTables(writer.get(), in_memory.get());
    if (step % 11 == 3) {
      writer = nullptr;
      auto attached = TableWriter::Attach(directory_.path(), kToken, "t");
      ASSERT_OK(attached);
      writer = attached.Take();
    }
    if (step == 40) file_bytes = Open("t")->Stats().file_bytes;
  }
  EXPECT_EQ(file_bytes, Open("t")->Stats().file_bytes);
}

// A checkpoint wants a row that is being removed, and its record cannot be read: the checkpoint
// fails, and the table can still be trained.
TEST_F(TableTierTest, ABadRecordOfARowThatGoesFailsTheCheckpointAlone) {
  TableConfig config = FileConfig("t", 10);
  config.policy.kind = PolicyKind::kRows;
  const auto writer = CreateTrained(config);
  ASSERT_OK(Change(writer.get(), KeysBetween(0, 10), 1));
  ASSERT_OK(Change(writer.get(), KeysBetween(10, 20), 1));
  SpoilRecord("t", 3);
  const auto frozen = writer->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  writer->removal().Remove({3});
  std::vector<int64_t> keys(20);
  std::vector<float> embeddings(20 * kDim), states(20 * kDim);
  std::vector<RowHistory> histories(20);
  ExpectError(
      frozen.value()->Read(0, {keys.data(), embeddings.data(), states.data(), histories.data()}),
      StatusCode::kDataLoss, {"Record 3 of ", RowsPath("t").c_str()});
  writer->snapshots().Thaw();
  EXPECT_EQ(19, writer->rows());
  ASSERT_OK(Change(writer.get(), KeysBetween(3, 9), 1));
}

// The rows of a table that decays lie divided by its decay; once in a long while all are scaled.
TEST_F(TableTierTest, DecayComesBackNearOneWhereRowsDoNotFit) {
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kAdagrad);
  optimizer.weight_decay = 0.5;
  const auto writer = Create(FileConfig("t", 20));
  ASSERT_OK(writer->SetOptimizer(optimizer));
  for (int64_t step = 0; step < 20; ++step) ASSERT_OK(Change(writer.get(), BatchOf(step), 1));
  const auto keys = KeysBetween(-150, 150);
  writer->PublishUpdate(writer->version() + 1, 0x1p-33, 1.0f, 0);
  const auto before = Lookup(Open("t").get(), keys);
  FailRead(30, EIO);
  ExpectError(writer->NormalizeDecay(RunInline), StatusCode::kSystem, {"Table 't'", "rows.1"});
  FailRead(0, 0);
  ExpectError(TableWriter::Attach(directory_.path(), kToken, "t").status(), StatusCode::kDataLoss,
              {"Table 't'"});
  ASSERT_OK(writer->NormalizeDecay(RunInline));
  EXPECT_EQ(0x1p-1, writer->page().decay());
  EXPECT_EQ(before, Lookup(Open("t").get(), keys));
}

TEST_F(TableTierTest, WhatCannotBeRightIsRefused) {
  TableConfig config = FileConfig("t", 10);
  config.policy.kind = PolicyKind::kRows;
  config.policy.min_norm = 0.5;
  ExpectError(TableWriter::Create(directory_.path(), kToken, config).status(),
              StatusCode::kInvalidArgument, {"Table 't'", "min_norm=0.5"});
  config = FileConfig("t", 10);
  config.files = "relative";
  ExpectError(TableWriter::Create(directory_.path(), kToken, config).status(),
              StatusCode::kInvalidArgument, {"absolute path", "relative"});
  config.files = directory_.path() + "/none";
  ExpectError(TableWriter::Create(directory_.path(), kToken, config).status(),
              StatusCode::kInvalidArgument, {"directory that exists", "none"});
  const auto writer = Create(FileConfig("t", 10));
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kAdam);
  optimizer.flags |= kEveryRow;
  ExpectError(writer->SetOptimizer(optimizer), StatusCode::kInvalidArgument, {"lies in files"});
  ASSERT_OK(Change(writer.get(), {1, 2}, 1));
  ExpectError(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)),
              StatusCode::kFailedPrecondition, {"has 2 rows"});
}

TEST_F(TableTierTest, TheFilesGoWithTheStore) {
  StoreConfig config = {directory_.path(), "job", 0, "rank 0", 5};
  std::vector<std::string> reclaimed;
  const std::string rows =
      TierDirectory(directory_.path(), StoreDirectory(directory_.path(), "job"), 5, "a/b");
  {
    auto store = Store::Create(config, &reclaimed);
    ASSERT_OK(store);
    const auto table = store.value()->OpenNamed(FileConfig("a/b", 10), 0);
    ASSERT_OK(table);
    ASSERT_OK(Change(table.value()->writer.get(), {1, 2}, 1));
    struct stat info;
    ASSERT_EQ(0, stat(rows.c_str(), &info));
    EXPECT_EQ(0700u, info.st_mode & 0777);
    store.value()->LeaveBehind();
  }
  EXPECT_EQ(0, access(rows.c_str(), F_OK));
  config.job = "other";
  const auto other = Store::Create(config, &reclaimed);  // sweeps what dead jobs left
  ASSERT_OK(other);
  EXPECT_EQ(1u, reclaimed.size());
  EXPECT_NE(0, access(rows.c_str(), F_OK));
}

// Rows that no update changes are read whole, wherever they lie, while updates push them around.
TEST_F(TableTierTest, LookupsBesideUpdatesReadWholeRows) {
  const auto writer = CreateTrained(FileConfig("t", 12));
  const std::vector<int64_t> keys = KeysBetween(0, 60);
  std::vector<float> rows(keys.size() * kDim);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / kDim);
  ASSERT_OK(WriteRows(writer.get(), keys, rows));
  std::atomic<bool> done{false};
  std::thread reading([&] {
    const auto reader = Open("t");
    while (!done) EXPECT_EQ(rows, Lookup(reader.get(), keys));
  });
  for (int64_t step = 0; step < 2000; ++step) {
    std::vector<int64_t> brought;
    for (int64_t i = 0; i < 6; ++i) brought.push_back((step * 7 + i * 11) % 60);
    std::sort(brought.begin(), brought.end());
    brought.erase(std::unique(brought.begin(), brought.end()), brought.end());
    EXPECT_OK(writer->chunks().files().Bring(brought, RunInline));
  }
  done = true;
  reading.join();
}

}  // namespace
}  // namespace tfhybrid::table_tier_test
