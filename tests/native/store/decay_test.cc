// A table whose optimizer decays weights, between what lies there and what it is worth.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/compute/bags.h"
#include "core/compute/row_update.h"
#include "core/store/table_loader.h"
#include "store/table_fixture.h"

namespace tfhybrid::decay_test {
namespace {

class DecayTest : public TableFixture {
 protected:
  void SetUp() override {
    writer_ = Create(config_);
    OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kAdagrad);
    optimizer.weight_decay = 0.5;
    ASSERT_OK(writer_->SetOptimizer(optimizer));
    reader_ = Open(config_.name);
  }

  // A step that touches no row.
  void Decay(double decay) { writer_->PublishUpdate(writer_->version() + 1, decay, 1.0f, kNoTime); }

  std::vector<float> InitialTimes(float decay, const std::vector<int64_t>& keys) const {
    std::vector<float> rows = InitialRows(config_, keys);
    for (float& value : rows) value *= decay;
    return rows;
  }

  const TableConfig config_ = ConfigOf("item", 5);
  std::unique_ptr<TableWriter> writer_;
  std::unique_ptr<TableReader> reader_;
};

TEST_F(DecayTest, KeysReadTheSameBitsBeforeAndAfterTheyGetARow) {
  const std::vector<int64_t> keys = {INT64_MIN, -1, 0, 7, INT64_MAX};
  EXPECT_EQ(InitialRows(config_, keys), Lookup(reader_.get(), keys));
  Decay(0.3);
  const std::vector<float> unseen = Lookup(reader_.get(), keys);
  EXPECT_EQ(InitialTimes(0.3f, keys), unseen);
  ASSERT_OK(CreateRows(writer_.get(), keys));
  EXPECT_EQ(unseen, Lookup(reader_.get(), keys));
  EXPECT_EQ(0.3, reader_->decay());
}

TEST_F(DecayTest, AllWaysToReadAgree) {
  const std::vector<int64_t> keys = KeysBetween(0, 200);
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(0, 100)));
  Decay(0.7);
  const std::vector<float> rows = Lookup(reader_.get(), keys);
  std::vector<int64_t> read_keys(100);
  std::vector<float> read(500), bags(1000), frozen(500), states(500);
  ASSERT_OK(reader_->ReadRows(0, 100, read_keys.data(), read.data()));
  EXPECT_EQ(std::vector<float>(rows.begin(), rows.begin() + 500), read);
  std::vector<int64_t> splits = KeysBetween(0, 201);
  ASSERT_OK(reader_->LookupBags(Span<const int64_t>(keys), {Combiner::kSum, splits}, 0, 200,
                                RowCursor<float>(bags.data(), RowLayout::Array(5), 0)));
  EXPECT_EQ(rows, bags);
  const auto freezing = writer_->snapshots().Freeze("test", false);
  ASSERT_OK(freezing);
  EXPECT_EQ(0.7, freezing.value()->decay());
  Decay(0.1);
  int64_t read_rows = 0;
  for (int64_t part = 0; part < freezing.value()->parts(); ++part) {
    EXPECT_OK(freezing.value()->Read(part, {&read_keys[static_cast<size_t>(read_rows)],
                                            &frozen[static_cast<size_t>(5 * read_rows)],
                                            &states[static_cast<size_t>(5 * read_rows)], nullptr}));
    read_rows += freezing.value()->PartRows(part);
  }
  EXPECT_EQ(read, frozen);
}

TEST_F(DecayTest, NothingIsLeftOutOfADeltaBecauseAllRowsChange) {
  ASSERT_OK(CreateRows(writer_.get(), {1, 2, 3}));
  writer_->snapshots().Track("test");
  Decay(0.9);
  const auto frozen = writer_->snapshots().Freeze("test", true);
  ASSERT_OK(frozen);
  EXPECT_TRUE(frozen.value()->whole());
}

TEST_F(DecayTest, RowsThatAreWrittenAreWorthWhatWasWritten) {
  Decay(0.25);
  const std::vector<float> rows = {1, 2, 3, 4, 5};
  ASSERT_OK(WriteRows(writer_.get(), {9}, rows));
  EXPECT_EQ(rows, Lookup(reader_.get(), {9}));
  ASSERT_OK(TableLoader(writer_.get()).Clear());
  EXPECT_EQ(1.0, reader_->decay());
  TableLoader(writer_.get()).SetInitialDecay(0.2);
  EXPECT_EQ(InitialTimes(0.2f, {9}), Lookup(reader_.get(), {9}));
  ASSERT_OK(CreateRows(writer_.get(), {9}));
  EXPECT_EQ(InitialTimes(0.2f, {9}), Lookup(reader_.get(), {9}));
}

TEST_F(DecayTest, NormalizingChangesNoBitThatIsRead) {
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(0, 1000)));
  Decay(0x1.23456p-31);
  const std::vector<float> not_yet = Lookup(reader_.get(), KeysBetween(0, 2000));
  ASSERT_OK(writer_->NormalizeDecay(RunInline));
  EXPECT_EQ(0x1.23456p-31, writer_->page().decay());
  // Rows as an update writes them: of normal size.
  for (int64_t row = 0; row < 1000; ++row) {
    ScaleRow(0x1p31f, 5, writer_->chunks().Row(row).embedding);
  }
  Decay(0x1.23456p-33);
  const std::vector<float> before = Lookup(reader_.get(), KeysBetween(0, 2000));
  const auto frozen = writer_->snapshots().Freeze("test", false);
  ASSERT_OK(frozen);
  ASSERT_OK(writer_->NormalizeDecay(RunInline));  // not while a checkpoint reads the rows
  EXPECT_EQ(0x1.23456p-33, writer_->page().decay());
  writer_->snapshots().Thaw();
  ASSERT_OK(writer_->NormalizeDecay(RunInline));
  EXPECT_EQ(0x1.23456p-1, writer_->page().decay());
  EXPECT_EQ(0x1p-32, writer_->page().initial_decay());
  EXPECT_EQ(0x1.23456p-33, reader_->decay());
  EXPECT_EQ(before, Lookup(reader_.get(), KeysBetween(0, 2000)));
  ASSERT_OK(CreateRows(writer_.get(), KeysBetween(1000, 2000)));
  EXPECT_EQ(before, Lookup(reader_.get(), KeysBetween(0, 2000)));
}

TEST_F(DecayTest, NextLeaderFindsTheDecay) {
  Decay(0.3);
  writer_ = nullptr;
  auto next = TableWriter::Attach(directory_.path(), kToken, config_.name);
  ASSERT_OK(next);
  EXPECT_EQ(0.3, next.value()->page().decay());
  EXPECT_EQ(0.5, next.value()->optimizer().weight_decay);
}

}  // namespace
}  // namespace tfhybrid::decay_test
