// Rows of a table in files exchange records: a row that leaves the cache is written over the record
// of a row that was read lately. Which records they get, and what a leader that dies meanwhile, or
// a program that changes addresses, leaves behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/store/recent_records.h"
#include "core/util/fault_point.h"
#include "shm/child_process.h"
#include "store/table_fixture.h"
#include "tier/failing_calls.h"

namespace tfhybrid::row_exchange_test {
namespace {

TEST(RecentRecordsTest, GivesTheLatestOfTheRegion) {
  constexpr int64_t kNext = RecentRecords::kRegionBytes;
  RecentRecords recent(100);
  EXPECT_EQ(RecentRecords::kNone, recent.Take(0));
  recent.Add(0, 7);
  recent.Add(3 * kNext, 8);
  recent.Add(kNext - 1, 9);
  EXPECT_EQ(RecentRecords::kNone, recent.Take(kNext));
  EXPECT_EQ(RecentRecords::kNone, recent.Take(9 * kNext));
  EXPECT_EQ(9, recent.Take(5));
  recent.Add(6, 10);
  EXPECT_EQ(10, recent.Take(0));
  EXPECT_EQ(7, recent.Take(0));
  EXPECT_EQ(RecentRecords::kNone, recent.Take(0));
  EXPECT_EQ(8, recent.Take(3 * kNext + 1));
}

TEST(RecentRecordsTest, ForgetsTheOldest) {
  for (const int64_t max_records : {1, 2, 5}) {
    SCOPED_TRACE(max_records);
    RecentRecords recent(max_records);
    for (int64_t row = 0; row < 23; ++row) {
      recent.Add(row % 3 * RecentRecords::kRegionBytes, row);
    }
    std::vector<int64_t> left;
    for (int64_t region = 0; region < 3; ++region) {
      for (;;) {
        const int64_t row = recent.Take(region * RecentRecords::kRegionBytes);
        if (row == RecentRecords::kNone) break;
        EXPECT_EQ(region, row % 3);
        left.push_back(row);
      }
    }
    std::sort(left.begin(), left.end());
    EXPECT_EQ(KeysBetween(23 - max_records, 23), left);
  }
}

constexpr int64_t kDim = 6;
constexpr int64_t kFirstChunk = 64;
constexpr int64_t kSlots = 12;
constexpr int64_t kSlotBytes = 16 + 2 * 4 * kDim;  // with Adagrad

class RowExchangeTest : public TableFixture {
 protected:
  // Rows of a first chunk that is not full, of which the cache holds some; each is its key.
  std::unique_ptr<TableWriter> CreateFilled() {
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      std::filesystem::remove_all(entry.path());
    }
    TableConfig config = ConfigOf("t", kDim);
    config.files = directory_.path();
    config.cache_bytes = kSlots * kSlotBytes;
    auto writer = Create(config);
    EXPECT_OK(writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    EXPECT_OK(WriteRows(writer.get(), Keys(), Rows()));
    return writer;
  }
  static std::vector<int64_t> Keys() { return KeysBetween(0, 60); }
  static std::vector<float> Rows() {
    std::vector<float> rows(Keys().size() * kDim);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / kDim);
    return rows;
  }
  // Rows whose numbers are spread over the table, other ones at each step.
  static std::vector<int64_t> BatchOf(int64_t step) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 5; ++i) rows.push_back((step * 5 + i * 7) % 60);
    return rows;
  }
  static Status Bring(TableWriter* writer, int64_t first, int64_t end) {
    for (int64_t step = first; step < end; ++step) {
      TFHYBRID_RETURN_IF_ERROR(writer->chunks().files().Bring(BatchOf(step), RunInline));
    }
    return Status::Ok();
  }
  Result<std::unique_ptr<TableWriter>> Attach() const {
    return TableWriter::Attach(directory_.path(), kToken, "t");
  }
  std::string AddressesPath() const { return TablePaths(directory_.path(), "t").Rows(0); }
  std::vector<uint64_t> Addresses() const {
    std::vector<uint64_t> addresses(kFirstChunk);
    std::ifstream file(AddressesPath(), std::ios::binary);
    file.seekg(EmbeddingsOffset(kFirstChunk));
    file.read(reinterpret_cast<char*>(addresses.data()), kFirstChunk * sizeof(uint64_t));
    EXPECT_TRUE(file.good());
    return addresses;
  }
  void SetAddress(int64_t row, uint64_t address) const {
    std::fstream file(AddressesPath(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(EmbeddingsOffset(kFirstChunk) + row * static_cast<int64_t>(sizeof(address)));
    file.write(reinterpret_cast<const char*>(&address), sizeof(address));
  }
  std::vector<int64_t> Records() const {
    std::vector<int64_t> records;
    for (const uint64_t address : Addresses()) records.push_back(RecordOf(address));
    return records;
  }
  bool AreCached(const std::vector<int64_t>& rows) const {
    const auto addresses = Addresses();
    return std::all_of(rows.begin(), rows.end(),
                       [&](int64_t row) { return IsCached(addresses[static_cast<size_t>(row)]); });
  }
  std::vector<int64_t> RowsThatAre(bool cached) const {
    std::vector<int64_t> rows;
    const auto addresses = Addresses();
    for (int64_t row = 0; row < 60; ++row) {
      if (IsCached(addresses[static_cast<size_t>(row)]) == cached) rows.push_back(row);
    }
    return rows;
  }
  void ExpectWhole() {
    EXPECT_EQ(Rows(), Lookup(Open("t").get(), Keys()));
    auto records = Records();
    std::sort(records.begin(), records.end());
    EXPECT_EQ(KeysBetween(0, kFirstChunk), records);
  }
  struct Exchanges {
    int64_t left = 0;
    int64_t exchanged = 0;
  };
  // Rows that leave exchange records with rows that stay, each with another one, or keep theirs.
  void BringAndExpectPairs(TableWriter* writer, const std::vector<int64_t>& rows, Exchanges* seen) {
    const auto before = Addresses();
    ASSERT_OK(writer->chunks().files().Bring(rows, RunInline));
    const auto after = Addresses();
    for (size_t row = 0; row < before.size(); ++row) {
      if (!IsCached(before[row]) || IsCached(after[row])) continue;
      ++seen->left;
      if (RecordOf(before[row]) == RecordOf(after[row])) continue;
      ++seen->exchanged;
      // Its record is that of a row which was cached, and has its own now.
      const auto other =
          static_cast<size_t>(std::find_if(before.begin(), before.end(),
                                           [&](uint64_t address) {
                                             return RecordOf(address) == RecordOf(after[row]);
                                           }) -
                              before.begin());
      ASSERT_TRUE(IsCached(before[other]));
      ASSERT_TRUE(IsCached(after[other]));
      ASSERT_EQ(RecordOf(before[row]), RecordOf(after[other]));
    }
  }
  // As if the leader had died between the two stores of an exchange: the cached row still has the
  // record that the other one got.
  void ExchangeHalf(int64_t stored, int64_t cached) const {
    const auto addresses = Addresses();
    const auto cached_address = addresses[static_cast<size_t>(cached)];
    SetAddress(cached,
               AddressOf(RecordOf(addresses[static_cast<size_t>(stored)]), WordOf(cached_address)));
  }
};

TEST_F(RowExchangeTest, ARowThatLeavesIsWrittenWhereOneWasReadLately) {
  const auto writer = CreateFilled();
  Exchanges seen;
  for (int64_t step = 0; step < 300; ++step) {
    ASSERT_NO_FATAL_FAILURE(BringAndExpectPairs(writer.get(), BatchOf(step), &seen));
  }
  ExpectWhole();
  EXPECT_GT(seen.left, 500);
  EXPECT_GT(seen.exchanged, seen.left * 9 / 10);
}

// Threads write the rows that leave: two that exchanged with one row could get the same record.
// Rows are removed and made again, so that a number is remembered of a row that was, and of one
// that is.
TEST_F(RowExchangeTest, ARowExchangesWithOneOtherAtATime) {
  const auto writer = CreateFilled();
  std::mt19937_64 random(11);
  Exchanges seen;
  for (int64_t step = 0; step < 1000; ++step) {
    std::vector<int64_t> rows = Keys();
    std::shuffle(rows.begin(), rows.end(), random);
    const std::vector<int64_t> again(rows.begin(), rows.begin() + 2);
    RowSet set;
    writer->Find(again, &set);
    writer->removal().Remove(set.rows);
    std::vector<float> values;
    for (const int64_t key : again) values.insert(values.end(), kDim, static_cast<float>(key));
    ASSERT_OK(WriteRows(writer.get(), again, values));
    rows.resize(1 + random() % 6);
    ASSERT_NO_FATAL_FAILURE(BringAndExpectPairs(writer.get(), rows, &seen));
  }
  ExpectWhole();
  EXPECT_GT(seen.exchanged, 500);
}

TEST_F(RowExchangeTest, RecordsStayWithRowsWhereTheCacheIsReplacedAtOnce) {
  const auto writer = CreateFilled();
  const auto before = Records();
  for (int64_t first = 0; first < 60; first += kSlots) {
    ASSERT_OK(writer->chunks().files().Bring(KeysBetween(first, first + kSlots), RunInline));
  }
  EXPECT_EQ(before, Records());
  ExpectWhole();
}

// The update of the last Bring() may have been staged: it writes to the slots that it was given.
TEST_F(RowExchangeTest, RowsBroughtAheadLeaveThoseOfTheLastUpdateWhereTheyAre) {
  const auto writer = CreateFilled();
  FileRows& files = writer->chunks().files();
  for (int64_t first = 0; first < 60; first += 3) {
    const std::vector<int64_t> staged = KeysBetween(first, first + 3);
    ASSERT_OK(files.Bring(staged, RunInline));
    const auto before = Addresses();
    // Some of them twice, some cached; then more than half of the cache has room for.
    const int64_t next = (first + 30) % 60;
    files.BringAhead({next, next + 1, next, first, next + 1, next + 2});
    files.BringAhead({(next + 6) % 60, (next + 7) % 60});
    const auto after = Addresses();
    for (const int64_t row : staged) {
      const auto at = static_cast<size_t>(row);
      EXPECT_EQ(SlotOf(before[at]), SlotOf(after[at]));
    }
    for (int64_t row = next; row < next + 3; ++row) {
      EXPECT_TRUE(IsCached(after[static_cast<size_t>(row)])) << row;
    }
    ExpectWhole();
  }
  ASSERT_OK(Bring(writer.get(), 0, 9));
  EXPECT_EQ(static_cast<size_t>(kSlots), RowsThatAre(true).size());
  ExpectWhole();
}

TEST_F(RowExchangeTest, RowsThatCannotBeBroughtAheadAreAsTheyWere) {
  const std::vector<int64_t> rows = {2, 22, 43};
  for (int64_t call = 1; call <= 3; ++call) {
    const auto writer = CreateFilled();
    FileRows& files = writer->chunks().files();
    ASSERT_OK(Bring(writer.get(), 0, 9));
    ASSERT_OK(files.Bring({59}, RunInline));
    FailWrite(call, EIO);
    files.BringAhead(rows);
    FailWrite(0, 0);
    EXPECT_FALSE(AreCached(rows));
    ExpectWhole();
    ASSERT_OK(files.Bring({59}, RunInline));
    files.BringAhead(rows);
    EXPECT_TRUE(AreCached(rows));
    ExpectWhole();
  }
}

TEST_F(RowExchangeTest, ANewLeaderBringsRowsAheadOfItsFirstUpdate) {
  ASSERT_OK(Bring(CreateFilled().get(), 0, 9));
  const auto writer = Attach();
  ASSERT_OK(writer);
  const std::vector<int64_t> rows = {1, 21, 41};
  writer.value()->chunks().files().BringAhead(rows);
  EXPECT_TRUE(AreCached(rows));
  ExpectWhole();
}

TEST_F(RowExchangeTest, AFailingWriteExchangesNothing) {
  const auto writer = CreateFilled();
  ASSERT_OK(Bring(writer.get(), 0, 9));
  for (int64_t step = 9; step < 40; ++step) {
    for (int64_t call = 1;; ++call) {
      FailWrite(call, EIO);
      const Status status = Bring(writer.get(), step, step + 1);
      FailWrite(0, 0);
      ExpectWhole();
      if (status.ok()) break;
      ASSERT_NE(std::string::npos, status.message().find("Cannot write record"))
          << status.message();
    }
  }
}

// A kill anywhere; then one anywhere in the next leader's repair; then a leader that trains.
TEST_F(RowExchangeTest, AKillLosesNoRowAndNoRecord) {
  int64_t repaired = 0;
  for (int64_t point = 1;; ++point) {
    SCOPED_TRACE(point);
    auto made = CreateFilled();
    ASSERT_OK(Bring(made.get(), 0, 9));
    made = nullptr;
    const bool killed = KilledInChild([&] {
      auto attached = Attach();
      ASSERT_OK(attached);
      ASSERT_OK(Bring(attached.value().get(), 9, 12));
      ArmFaultPoint(point);
      EXPECT_OK(Bring(attached.value().get(), 12, 13));
      attached.value()->chunks().files().BringAhead({2, 22});
      EXPECT_OK(Bring(attached.value().get(), 13, 14));
    });
    EXPECT_EQ(Rows(), Lookup(Open("t").get(), Keys()));
    auto records = Records();
    std::sort(records.begin(), records.end());
    if (records != KeysBetween(0, kFirstChunk)) {
      ++repaired;
      const bool killed_again = KilledInChild([&] {
        ArmFaultPoint(1);
        EXPECT_OK(Attach());
      });
      EXPECT_TRUE(killed_again);
    }
    {
      auto attached = Attach();
      ASSERT_OK(attached);
      ExpectWhole();
      ASSERT_OK(Bring(attached.value().get(), 20, 60));
      ExpectWhole();
    }
    ASSERT_FALSE(HasFailure());
    if (!killed) break;
  }
  EXPECT_GT(repaired, 3);
}

TEST_F(RowExchangeTest, ManyHalfExchangesAreRepairedAtOnce) {
  auto writer = CreateFilled();
  ASSERT_OK(Bring(writer.get(), 0, 20));
  writer = nullptr;
  const auto stored = RowsThatAre(false), cached = RowsThatAre(true);
  ASSERT_EQ(static_cast<size_t>(kSlots), cached.size());
  for (size_t i = 0; i < cached.size(); ++i) ExchangeHalf(stored[3 * i], cached[i]);
  auto attached = Attach();
  ASSERT_OK(attached);
  ExpectWhole();
  ASSERT_OK(Bring(attached.value().get(), 20, 60));
  ExpectWhole();
}

TEST_F(RowExchangeTest, WhatNoExchangeLeavesIsRefused) {
  auto writer = CreateFilled();
  ASSERT_OK(Bring(writer.get(), 0, 20));
  writer = nullptr;
  const auto stored = RowsThatAre(false), cached = RowsThatAre(true);
  const auto addresses = Addresses();
  const auto restore = [&] {
    for (int64_t row = 0; row < kFirstChunk; ++row)
      SetAddress(row, addresses[static_cast<size_t>(row)]);
  };
  const auto expect_refused = [&](const std::string& what) {
    ExpectError(Attach().status(), StatusCode::kDataLoss, {what});
    restore();
  };
  ExchangeHalf(stored[5], stored[4]);
  expect_refused("has record");
  ExchangeHalf(cached[5], cached[4]);
  expect_refused("as another row has");
  ExchangeHalf(stored[5], cached[4]);
  ExchangeHalf(stored[5], cached[6]);
  expect_refused("as another row has");
  ExchangeHalf(kFirstChunk - 1, cached[4]);  // of a row that is not there
  expect_refused("as another row has");
  SetAddress(cached[4], AddressOf(kFirstChunk, WordOf(addresses[static_cast<size_t>(cached[4])])));
  expect_refused("of 64");
  // The record that both have is not the stored row's.
  SetAddress(stored[5], addresses[static_cast<size_t>(stored[5])] ^ 1);
  ExchangeHalf(stored[5], cached[4]);
  expect_refused("checksum");
  EXPECT_OK(Attach());
}

}  // namespace
}  // namespace tfhybrid::row_exchange_test
