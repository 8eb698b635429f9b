// Rows that are written behind the last, on several threads, as a checkpoint is restored.
#include "core/store/table_loader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "store/table_fixture.h"

namespace tfhybrid::table_loader_test {
namespace {

constexpr int64_t kRows = 300000;  // of several blocks

// More threads than there are keys in a small load.
void RunOnThreads(int64_t total, int64_t /*cost*/,
                  const std::function<void(int64_t begin, int64_t end)>& work) {
  constexpr int64_t kThreads = 7;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { work(total * i / kThreads, total * (i + 1) / kThreads); });
  }
  for (std::thread& thread : threads) thread.join();
}

class TableLoaderTest : public TableFixture {
 protected:
  TableLoaderTest() : writer_(Create(ConfigOf("item", 2))) {
    std::mt19937_64 random(1);
    keys_ = {kMinKey, kMaxKey, 0, -1};
    while (keys_.size() < kRows) keys_.push_back(static_cast<int64_t>(random()));
    EXPECT_OK(writer_->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
  }

  // Embeddings and state that tell which position they come from.
  static std::vector<float> RowsOf(size_t keys, float offset) {
    std::vector<float> rows(2 * keys);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i) + offset;
    return rows;
  }
  Status Write(const std::vector<int64_t>& keys, const ParallelFor& parallel_for = RunOnThreads) {
    return TableLoader(writer_.get())
        .WriteRows(keys, RowsOf(keys.size(), 0.25f).data(), RowsOf(keys.size(), 0.5f).data(),
                   nullptr, parallel_for);
  }
  // What was written last of each of the keys is read, and rows lie in the order of their keys.
  void ExpectRows(const std::vector<int64_t>& keys) {
    std::map<int64_t, size_t> last;
    for (size_t i = 0; i < keys.size(); ++i) last[keys[i]] = i;
    ASSERT_EQ(static_cast<int64_t>(last.size()), writer_->rows());
    const std::vector<float> rows = Lookup(Open("item").get(), keys);
    std::vector<float> states(2 * keys.size());
    ASSERT_OK(writer_->ReadKeys(keys, states.data(), nullptr));
    int64_t row = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto position = static_cast<float>(2 * last[keys[i]]);
      ASSERT_EQ(position + 0.25f, rows[2 * i]) << i;
      ASSERT_EQ(position + 1.5f, states[2 * i + 1]) << i;
      if (writer_->index().Find(keys[i]) == row) ++row;
    }
    EXPECT_EQ(writer_->rows(), row);
  }

  std::unique_ptr<TableWriter> writer_;
  std::vector<int64_t> keys_;
};

TEST_F(TableLoaderTest, RowsLieInTheOrderOfTheirKeys) {
  ASSERT_OK(writer_->Reserve(kRows));
  const int64_t room = writer_->Room();
  ASSERT_OK(Write(keys_));
  EXPECT_EQ(room - kRows, writer_->Room());
  ExpectRows(keys_);
}

TEST_F(TableLoaderTest, LastOfEqualKeysIsWrittenWhereverTheyLie) {
  ASSERT_OK(writer_->Reserve(kRows));
  for (const size_t twin : {size_t{1}, size_t{300}, size_t{140000}, size_t{kRows - 1}}) {
    std::vector<int64_t> keys = keys_;
    keys[twin] = keys[0];
    ASSERT_OK(TableLoader(writer_.get()).Clear());
    ASSERT_OK(Write(keys));
    ExpectRows(keys);
  }
}

TEST_F(TableLoaderTest, RowsOfKeysThatAreThereAreOverwritten) {
  ASSERT_OK(writer_->Reserve(2 * kRows));
  ASSERT_OK(Write(keys_));
  std::vector<int64_t> keys(keys_.begin(), keys_.begin() + 1000);
  ASSERT_OK(Write(keys));  // all of them
  EXPECT_EQ(kRows, writer_->rows());
  keys.insert(keys.begin(), {5, 6});  // after two new ones
  ASSERT_OK(Write(keys));
  EXPECT_EQ(kRows + 2, writer_->rows());
  EXPECT_EQ((std::vector<float>{0.25f, 1.25f, 4.25f, 5.25f}),
            Lookup(Open("item").get(), {5, keys_[0]}));
}

TEST_F(TableLoaderTest, SmallLoadsAreWritten) {
  ASSERT_OK(writer_->Reserve(100));
  ASSERT_OK(Write({}));
  EXPECT_EQ(0, writer_->rows());
  ASSERT_OK(Write({kMaxKey, kMinKey, 3}));
  ExpectRows({kMaxKey, kMinKey, 3});
}

TEST_F(TableLoaderTest, NoRowIsThereAfterALoadWithoutThreads) {
  ASSERT_OK(writer_->Reserve(kRows));
  int calls = 0;
  const auto fails = [&](int64_t total, int64_t cost,
                         const std::function<void(int64_t begin, int64_t end)>& work) {
    // The second call fills the index.
    if (++calls == 2) throw std::runtime_error("no thread");
    RunOnThreads(total, cost, work);
  };
  EXPECT_THROW(static_cast<void>(Write(keys_, fails)), std::runtime_error);
  EXPECT_EQ(0, writer_->rows());
  ASSERT_OK(Write(keys_));
  ExpectRows(keys_);
}

TEST_F(TableLoaderTest, SpaceThatWasReservedOutlivesClearOfATableWithoutRows) {
  ASSERT_OK(writer_->Reserve(kRows));
  const int64_t room = writer_->Room();
  ASSERT_OK(TableLoader(writer_.get()).Clear());
  EXPECT_EQ(room, writer_->Room());
  ASSERT_OK(Write(keys_));
  ASSERT_OK(TableLoader(writer_.get()).Clear());
  EXPECT_LT(writer_->Room(), room);
  EXPECT_EQ(KeyIndex::kMissing, writer_->index().Find(keys_[0]));
}

}  // namespace
}  // namespace tfhybrid::table_loader_test
