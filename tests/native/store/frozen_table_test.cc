#include "core/store/frozen_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/table_fixture.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDim = 4;
constexpr int64_t kRows = 1000;  // in five chunks

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
    if (writer_->frozen() != nullptr) writer_->frozen()->Keep(row, writer_->Row(row));
    Stamp(row, stamp);
  }
  void Stamp(int64_t row, float stamp) {
    const TableRow at = writer_->Row(row);
    std::fill_n(at.embedding, at.dim, stamp);
    std::fill_n(at.state, at.state_floats, -stamp);
  }
  std::shared_ptr<FrozenTable> Freeze() {
    auto frozen = writer_->Freeze();
    EXPECT_OK(frozen);
    return frozen.Take();
  }

  // Rows [first, end) are read as keys 'first' on, stamped with 1.
  static void ExpectAsFrozen(FrozenTable* frozen, int64_t first, int64_t end) {
    const auto count = static_cast<size_t>(end - first);
    std::vector<int64_t> keys(count);
    std::vector<float> embeddings(count * kDim), states(count * kDim);
    frozen->Read(first, end - first, keys.data(), embeddings.data(), states.data());
    EXPECT_EQ(KeysBetween(first, end), keys);
    EXPECT_EQ(embeddings.size(), std::count(embeddings.begin(), embeddings.end(), 1.0f));
    EXPECT_EQ(states.size(), std::count(states.begin(), states.end(), -1.0f));
  }

  std::unique_ptr<TableWriter> writer_;
};

TEST_F(FrozenTableTest, RowsAreReadAsTheyWere) {
  const auto frozen = Freeze();
  EXPECT_EQ(kRows, frozen->rows());
  EXPECT_EQ(writer_->version(), frozen->version());
  for (int64_t row = 0; row < kRows; row += 3) Change(row, 2);
  ExpectAsFrozen(frozen.get(), 0, 300);
  for (int64_t row = 0; row < kRows; ++row) Change(row, 3);
  for (int64_t row = 0; row < kRows; ++row) Change(row, 4);
  ExpectAsFrozen(frozen.get(), 300, kRows);
}

TEST_F(FrozenTableTest, RowsThatComeLaterAreNotOfIt) {
  const auto frozen = Freeze();
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(kRows, 3 * kRows)));
  for (int64_t row = 0; row < 3 * kRows; ++row) Change(row, 2);
  EXPECT_EQ(kRows, frozen->rows());
  ExpectAsFrozen(frozen.get(), 0, kRows);
}

TEST_F(FrozenTableTest, UpdatesGoOnWhileItIsRead) {
  for (int round = 0; round < 5; ++round) {
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
    for (int64_t first = 0; first < kRows; first += 50) {
      ExpectAsFrozen(frozen.get(), first, first + 50);
    }
    stop = true;
    for (std::thread& thread : updating) thread.join();
    writer_->Thaw();
    for (int64_t row = 0; row < kRows; ++row) Stamp(row, 1);
  }
}

TEST_F(FrozenTableTest, NothingIsLoadedOrForgottenMeanwhile) {
  const auto frozen = Freeze();
  const std::vector<int64_t> keys = {5};
  const std::vector<float> row(kDim);
  ExpectError(WriteRows(writer_.get(), keys, row), StatusCode::kFailedPrecondition,
              {"Table 't' is being saved"});
  ExpectError(writer_->Clear(), StatusCode::kFailedPrecondition, {"is being saved"});
  ExpectError(writer_->Freeze().status(), StatusCode::kFailedPrecondition, {"is being saved"});
  ExpectAsFrozen(frozen.get(), 0, kRows);
  writer_->Thaw();
  EXPECT_OK(WriteRows(writer_.get(), keys, row));
  EXPECT_OK(writer_->Clear());
}

TEST_F(FrozenTableTest, EmptyTableIsFrozenToo) {
  const auto empty = Create(ConfigOf("empty", 2));
  const auto frozen = empty->Freeze();
  ASSERT_OK(frozen);
  EXPECT_EQ(0, frozen.value()->rows());
}

}  // namespace
}  // namespace tfhybrid
