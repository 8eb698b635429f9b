#include "core/store/frozen_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/store/table_loader.h"
#include "store/table_fixture.h"

namespace tfhybrid::frozen_table_test {
namespace {

constexpr int64_t kDim = 4096;       // so that a full chunk has but 2,048 rows
constexpr int64_t kPartRows = 2048;  // in six chunks
constexpr int64_t kRows = 2 * kPartRows + 70;

class FrozenTableTest : public TableFixture {
 protected:
  void SetUp() override {
    writer_ = Create(ConfigOf("t", kDim));
    ASSERT_OK(writer_->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    ASSERT_OK(CreateRows(writer_.get(), KeysBetween(0, kRows)));
    for (int64_t row = 0; row < kRows; ++row) Stamp(row, 1);
  }

  // As an update does.
  void Change(int64_t row, float stamp) {
    writer_->snapshots().BeforeChange(row, writer_->chunks().Row(row));
    Stamp(row, stamp);
  }
  void Stamp(int64_t row, float stamp) {
    const TableRow at = writer_->chunks().Row(row);
    std::fill_n(at.embedding, at.dim, stamp);
    std::fill_n(at.state, at.state_floats, -stamp);
  }
  std::shared_ptr<FrozenTable> Freeze(bool only_changed = false) {
    auto frozen = writer_->snapshots().Freeze("test", only_changed);
    EXPECT_OK(frozen);
    return frozen.Take();
  }

  // A part is read as these keys, each stamped with `stamp`.
  static void ExpectPart(FrozenTable* frozen, int64_t part, const std::vector<int64_t>& wanted,
                         float stamp = 1) {
    ASSERT_EQ(static_cast<int64_t>(wanted.size()), frozen->PartRows(part));
    std::vector<int64_t> keys(wanted.size());
    std::vector<float> embeddings(wanted.size() * kDim), states(wanted.size() * kDim);
    EXPECT_OK(frozen->Read(part, {keys.data(), embeddings.data(), states.data(), nullptr}));
    EXPECT_EQ(wanted, keys);
    EXPECT_EQ(embeddings.size(), std::count(embeddings.begin(), embeddings.end(), stamp));
    EXPECT_EQ(states.size(), std::count(states.begin(), states.end(), -stamp));
  }
  static void ExpectAllAsFrozen(FrozenTable* frozen, int64_t first_part = 0) {
    ASSERT_EQ(3, frozen->parts());
    for (int64_t part = first_part; part < 3; ++part) {
      ExpectPart(frozen, part,
                 KeysBetween(part * kPartRows, std::min(kRows, (part + 1) * kPartRows)));
    }
  }

  std::unique_ptr<TableWriter> writer_;
};

TEST_F(FrozenTableTest, RowsAreReadAsTheyWere) {
  const auto frozen = Freeze();
  EXPECT_TRUE(frozen->whole());
  EXPECT_EQ(kRows, frozen->table_rows());
  EXPECT_EQ(writer_->version(), frozen->version());
  for (int64_t row = 0; row < kRows; row += 3) Change(row, 2);
  ExpectPart(frozen.get(), 0, KeysBetween(0, kPartRows));
  for (int64_t row = 0; row < kRows; ++row) Change(row, 3);
  for (int64_t row = 0; row < kRows; ++row) Change(row, 4);
  ExpectAllAsFrozen(frozen.get(), 1);
}

TEST_F(FrozenTableTest, RowsThatComeLaterAreNotOfIt) {
  const auto frozen = Freeze();
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(kRows, kRows + 200)));
  for (int64_t row = 0; row < kRows + 200; ++row) Change(row, 2);
  EXPECT_EQ(kRows, frozen->table_rows());
  ExpectAllAsFrozen(frozen.get());
}

TEST_F(FrozenTableTest, UpdatesGoOnWhileItIsRead) {
  for (int round = 0; round < 3; ++round) {
    const auto frozen = Freeze();
    std::atomic<bool> stop{false};
    std::vector<std::thread> updating;
    for (int64_t thread = 0; thread < 2; ++thread) {
      updating.emplace_back([this, thread, &stop] {
        for (float stamp = 2; !stop; ++stamp) {
          for (int64_t row = thread; row < kRows; row += 2) Change(row, stamp);
        }
      });
    }
    ExpectAllAsFrozen(frozen.get());
    stop = true;
    for (std::thread& thread : updating) thread.join();
    writer_->snapshots().Thaw();
    for (int64_t row = 0; row < kRows; ++row) Stamp(row, 1);
  }
}

TEST_F(FrozenTableTest, OnlyWhatChangedIsReadIfAskedFor) {
  writer_->snapshots().Track("test");
  for (const int64_t row : {63, 64, 2047, 2048, 4165}) Change(row, 2);
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(kRows, kRows + 2)));
  for (const int64_t row : {kRows, kRows + 1}) Stamp(row, 2);
  const auto frozen = Freeze(true);
  EXPECT_FALSE(frozen->whole());
  EXPECT_EQ(kRows + 2, frozen->table_rows());
  for (int64_t row = 0; row < kRows + 2; ++row) Change(row, 3);
  ASSERT_EQ(1, frozen->parts());
  ExpectPart(frozen.get(), 0, {63, 64, 2047, 2048, 4165, kRows, kRows + 1}, 2);
}

TEST_F(FrozenTableTest, FreezingBeginsToTrackAnew) {
  writer_->snapshots().Track("test");
  Change(1, 2);
  Freeze();
  Change(2, 2);
  writer_->snapshots().Thaw();
  ExpectPart(Freeze(true).get(), 0, {2}, 2);
  writer_->snapshots().Thaw();
  EXPECT_EQ(0, Freeze(true)->parts());
}

TEST_F(FrozenTableTest, CursorsDoNotTakeEachOthersMarks) {
  writer_->snapshots().Track("test");
  writer_->snapshots().Track("other");
  Change(1, 2);
  ExpectPart(Freeze(true).get(), 0, {1}, 2);
  writer_->snapshots().Thaw();
  Change(2, 2);
  const auto other = writer_->snapshots().Freeze("other", true);
  ExpectPart(other.value().get(), 0, {1, 2}, 2);
  writer_->snapshots().Thaw();
  const auto nobody = writer_->snapshots().Freeze("", false);
  EXPECT_TRUE(nobody.value()->whole());
  writer_->snapshots().Thaw();
  ExpectPart(Freeze(true).get(), 0, {2}, 2);
}

TEST_F(FrozenTableTest, WhatIsReturnedIsReadAgain) {
  writer_->snapshots().Track("test");
  Change(1, 2);
  Change(64, 2);
  Freeze(true);
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(kRows, kRows + 70)));
  for (int64_t row = kRows; row < kRows + 70; ++row) Stamp(row, 2);
  Change(2, 2);
  writer_->snapshots().ReturnChanges();
  writer_->snapshots().ReturnChanges();  // there is nothing left
  writer_->snapshots().Thaw();
  std::vector<int64_t> wanted = {1, 2, 64};
  for (int64_t key = kRows; key < kRows + 70; ++key) wanted.push_back(key);
  ExpectPart(Freeze(true).get(), 0, wanted, 2);
  writer_->snapshots().Thaw();
  EXPECT_EQ(0, Freeze(true)->parts());
  writer_->snapshots().ReturnChanges();
}

TEST_F(FrozenTableTest, ManyChangedRowsAreInPartsThatShareNoChunk) {
  writer_->snapshots().Track("test");
  for (int64_t row = 1; row < kRows; ++row) Change(row, 2);
  const auto frozen = Freeze(true);
  ASSERT_EQ(3, frozen->parts());
  ExpectPart(frozen.get(), 1, KeysBetween(kPartRows, 2 * kPartRows), 2);
  ExpectPart(frozen.get(), 0, KeysBetween(1, kPartRows), 2);
  ExpectPart(frozen.get(), 2, KeysBetween(2 * kPartRows, kRows), 2);
}

TEST_F(FrozenTableTest, AllRowsAreReadWhereChangesAreNotTracked) {
  EXPECT_TRUE(Freeze(true)->whole());
  writer_->snapshots().Thaw();
  const std::vector<int64_t> keys = {5};
  const std::vector<float> row(kDim);
  writer_->snapshots().Track("test");
  ASSERT_OK(WriteRows(writer_.get(), keys, row));
  EXPECT_TRUE(Freeze(true)->whole());
  writer_->snapshots().Thaw();
  writer_->snapshots().Track("test");
  ASSERT_OK(TableLoader(writer_.get()).Clear());
  EXPECT_TRUE(Freeze(true)->whole());
}

// Rows may be removed from a table with histories.
class FrozenForgettingTest : public TableFixture {
 protected:
  static constexpr int64_t kCount = 300;  // rows, in four chunks

  void SetUp() override {
    TableConfig config = ConfigOf("t", 2);
    config.policy.kind = PolicyKind::kRows;
    writer_ = Create(config);
    ASSERT_OK(writer_->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    AddRows(0, kCount);
  }

  // Of keys [first, end): embeddings are the key, states its half, times its negative.
  void AddRows(int64_t first, int64_t end) {
    const std::vector<int64_t> keys = KeysBetween(first, end);
    RowSet set;
    ASSERT_OK(writer_->CreateMissing(keys, &set, RowStart::kInitial, RunInline));
    for (size_t i = 0; i < keys.size(); ++i) {
      const TableRow row = writer_->chunks().Row(set.rows[i]);
      std::fill_n(row.embedding, 2, static_cast<float>(keys[i]));
      std::fill_n(row.state, 2, static_cast<float>(keys[i]) / 2);
      row.history->last_time = -keys[i];
    }
  }
  void RemoveKeys(const std::vector<int64_t>& keys) {
    RowSet set;
    writer_->Find(keys, &set);
    writer_->removal().Remove(set.rows);
  }

  // All keys that it has; that rows belong to them is expected.
  static std::set<int64_t> KeysIn(FrozenTable* frozen) {
    std::set<int64_t> all;
    for (int64_t part = 0; part < frozen->parts(); ++part) {
      const auto rows = static_cast<size_t>(frozen->PartRows(part));
      std::vector<int64_t> keys(rows);
      std::vector<float> embeddings(2 * rows), states(2 * rows);
      std::vector<RowHistory> histories(rows);
      EXPECT_OK(
          frozen->Read(part, {keys.data(), embeddings.data(), states.data(), histories.data()}));
      for (size_t i = 0; i < rows; ++i) {
        EXPECT_TRUE(all.insert(keys[i]).second) << keys[i];
        EXPECT_EQ(static_cast<float>(keys[i]), embeddings[2 * i + 1]);
        EXPECT_EQ(static_cast<float>(keys[i]) / 2, states[2 * i]);
        EXPECT_EQ(-keys[i], histories[i].last_time);
      }
    }
    return all;
  }
  static std::set<int64_t> SetOf(const std::vector<int64_t>& keys) {
    return {keys.begin(), keys.end()};
  }

  std::unique_ptr<TableWriter> writer_;
};

TEST_F(FrozenForgettingTest, RemovedRowsAndThoseInTheirPlaceAreReadAsTheyWere) {
  const auto frozen = writer_->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  RemoveKeys(KeysBetween(0, 250));
  AddRows(1000, 1280);
  RemoveKeys({1000, 1001, 299});
  EXPECT_EQ(SetOf(KeysBetween(0, kCount)), KeysIn(frozen.value().get()));
  writer_->snapshots().Thaw();
  const auto now = writer_->snapshots().Freeze("test", false);
  ASSERT_OK(now);
  std::set<int64_t> wanted = SetOf(KeysBetween(250, 299));
  for (int64_t key = 1002; key < 1280; ++key) wanted.insert(key);
  EXPECT_EQ(wanted, KeysIn(now.value().get()));
}

TEST_F(FrozenForgettingTest, WhatWasRemovedSinceIsTold) {
  writer_->snapshots().Track("test");
  RemoveKeys({5, 298, 299});
  AddRows(5, 6);
  AddRows(700, 702);
  const auto frozen = writer_->snapshots().Freeze("test", true);
  ASSERT_OK(frozen);
  EXPECT_EQ(SetOf({5, 298, 299}), SetOf(frozen.value()->removed()));
  // The row that took the place of key 5 has moved, which counts as a change.
  EXPECT_EQ(SetOf({5, 297, 700, 701}), KeysIn(frozen.value().get()));
  writer_->snapshots().Thaw();
  const auto again = writer_->snapshots().Freeze("test", true);
  ASSERT_OK(again);
  EXPECT_TRUE(again.value()->removed().empty());
  EXPECT_EQ(0, again.value()->parts());
}

TEST_F(FrozenTableTest, NothingIsLoadedOrForgottenMeanwhile) {
  const auto frozen = Freeze();
  const std::vector<int64_t> keys = {5};
  const std::vector<float> row(kDim);
  ExpectError(WriteRows(writer_.get(), keys, row), StatusCode::kFailedPrecondition,
              {"Table 't' is being saved"});
  ExpectError(TableLoader(writer_.get()).Clear(), StatusCode::kFailedPrecondition,
              {"is being saved"});
  ExpectError(writer_->snapshots().Freeze("test", false).status(), StatusCode::kFailedPrecondition,
              {"is being saved"});
  ExpectAllAsFrozen(frozen.get());
  writer_->snapshots().Thaw();
  EXPECT_OK(WriteRows(writer_.get(), keys, row));
  EXPECT_OK(TableLoader(writer_.get()).Clear());
}

TEST_F(FrozenTableTest, EmptyTableIsFrozenToo) {
  const auto empty = Create(ConfigOf("empty", 2));
  for (const bool only_changed : {false, true}) {
    empty->snapshots().Track("test");
    const auto frozen = empty->snapshots().Freeze("test", only_changed);
    ASSERT_OK(frozen);
    EXPECT_EQ(0, frozen.value()->table_rows());
    EXPECT_EQ(0, frozen.value()->parts());
    empty->snapshots().Thaw();
  }
}

}  // namespace
}  // namespace tfhybrid::frozen_table_test
