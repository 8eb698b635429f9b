// Rows that were found ahead of a lookup are those that it finds itself, whatever happened to the
// table in between.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "core/store/table_loader.h"
#include "store/table_fixture.h"

namespace tfhybrid::found_rows_test {
namespace {

constexpr int64_t kDim = 3;

class FoundRowsTest : public TableFixture {
 protected:
  FoundRowsTest() : writer_(Create(ConfigOf("item", kDim))), reader_(Open("item")) {
    for (int64_t key = 0; key < 600; ++key) keys_.push_back(7 * key - 300);
    keys_.insert(keys_.end(), {kMinKey, kMaxKey});
    EXPECT_OK(writer_->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
  }

  // Every second key gets a row, with numbers that tell whose it is.
  void WriteEverySecond(size_t first) {
    std::vector<int64_t> keys;
    std::vector<float> rows;
    for (size_t i = first; i < keys_.size(); i += 2) {
      keys.push_back(keys_[i]);
      rows.insert(rows.end(), kDim, static_cast<float>(i));
    }
    ASSERT_OK(WriteRows(writer_.get(), keys, rows));
  }

  // Reads each key by what was found ahead, and compares with a lookup of today.
  void ExpectAsFound(const RowNumbers& ahead) {
    const auto found = reader_->Find(keys_, RunInline, ahead);
    ASSERT_OK(found);
    std::vector<uint32_t> numbers;
    for (size_t i = 0; i < keys_.size(); ++i) numbers.push_back(static_cast<uint32_t>(i));
    std::vector<float> rows(keys_.size() * kDim);
    ASSERT_OK(reader_->Lookup(LookupKeys(keys_, numbers.data(), &found.value()),
                              RowCursor<float>(rows.data(), RowLayout::Array(kDim), 0)));
    EXPECT_EQ(Lookup(reader_.get(), keys_), rows);
  }

  // As an update does that finds the rows of some keys expired.
  void Evict(Span<const int64_t> keys) {
    RowSet set;
    writer_->Find(keys, &set);
    std::vector<int64_t> rows;
    for (const int64_t row : set.rows) {
      if (row != KeyIndex::kMissing) rows.push_back(row);
    }
    writer_->removal().Remove(rows);
  }

  RowNumbers Ahead() { return reader_->FindAhead(keys_, RunInline); }

  std::unique_ptr<TableWriter> writer_;
  std::unique_ptr<TableReader> reader_;
  std::vector<int64_t> keys_;
};

TEST_F(FoundRowsTest, KeysThatHaveARowSinceAreFound) {
  WriteEverySecond(0);
  const RowNumbers ahead = Ahead();
  ASSERT_EQ(keys_.size(), ahead.rows.size());
  EXPECT_EQ(0, ahead.rows[0]);
  EXPECT_EQ(KeyIndex::kMissing, ahead.rows[1]);
  ASSERT_OK(
      Update(writer_.get(), {keys_[1], keys_[601]}, std::vector<float>(2 * kDim, 1.0f), 1, 1));
  ExpectAsFound(ahead);
}

// The last row takes the place of a row that goes.
TEST_F(FoundRowsTest, RowsThatHaveMovedSinceAreFoundAnew) {
  WriteEverySecond(0);
  RowNumbers ahead = Ahead();
  Evict({keys_.data(), 5});
  ExpectAsFound(ahead);
  ahead = Ahead();
  ASSERT_OK(TableLoader(writer_.get()).RemoveKeys({keys_.data() + 5, 5}));
  ExpectAsFound(ahead);
  ahead = Ahead();
  Evict({keys_.data(), 5});  // which have no rows
  EXPECT_EQ(ahead.moves, Ahead().moves);
}

TEST_F(FoundRowsTest, RowsOfATableThatWasLoadedSinceAreFoundAnew) {
  WriteEverySecond(0);
  const RowNumbers ahead = Ahead();
  ASSERT_OK(TableLoader(writer_.get()).Clear());
  ExpectAsFound(ahead);
  WriteEverySecond(1);
  ExpectAsFound(ahead);
}

TEST_F(FoundRowsTest, UpdatesAndGrowthMoveNoRows) {
  WriteEverySecond(0);
  const RowNumbers ahead = Ahead();
  std::vector<int64_t> others(100000);
  for (size_t i = 0; i < others.size(); ++i) others[i] = 1000000 + static_cast<int64_t>(i);
  ASSERT_OK(CreateRows(writer_.get(), others));
  EXPECT_EQ(ahead.moves, Ahead().moves);
  ExpectAsFound(ahead);
}

// While one thread finds rows ahead, another creates and removes them. Between two changes, each
// find that has ended is compared.
TEST_F(FoundRowsTest, RowsAreFoundWhileTheyMove) {
  WriteEverySecond(0);
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> changed{false};
    std::vector<RowNumbers> found;
    std::thread finder([&] {
      do {
        found.push_back(Ahead());
      } while (!changed);
    });
    const int64_t first = static_cast<int64_t>(random() % 500);
    if (round % 2 == 0) {
      Evict({keys_.data() + first, 40});
    } else {
      EXPECT_OK(CreateRows(writer_.get(), {keys_.begin() + first, keys_.begin() + first + 40}));
    }
    changed = true;
    finder.join();
    for (const RowNumbers& ahead : found) ExpectAsFound(ahead);
  }
}

}  // namespace
}  // namespace tfhybrid::found_rows_test
