#include "core/update/update_journal.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/segment_files.h"

namespace tfhybrid::update_journal_test {
namespace {

constexpr uint64_t kToken = 33;
constexpr int64_t kRowFloats = 9;

UpdateSettings Settings() {
  UpdateSettings settings;
  settings.schema = {{"user", std::string(kMaxTableName, 'n')}, {3, 5}};
  settings.hosts = {0, 0, 4, 7};
  settings.reduction = Reduction::kMean;
  settings.exchange = Exchange::kOwner;
  settings.clipping = Clipping::kGlobalNorm;
  settings.clip_limit = 1.5f;
  return settings;
}

std::vector<TableBeginning> Beginnings(uint64_t first, uint64_t second) {
  return {{first, 0.75, 11, 1700000000, 0.5f, 0.125f}, {second, 1.0, 12, kNoTime, 0.25f, 1.0f}};
}

class UpdateJournalTest : public testing::Test {
 protected:
  std::string Path() const { return directory_.File("update"); }
  UpdateJournal Create() const {
    return UpdateJournal::Create(Path(), kToken, Settings(), kRowFloats).Take();
  }
  UpdateJournal Open() const { return UpdateJournal::Open(Path(), kToken).Take(); }
  Status OpenError() const { return UpdateJournal::Open(Path(), kToken).status(); }

  TemporaryDirectory directory_;
};

TEST_F(UpdateJournalTest, NextLeaderFindsTheSettings) {
  Create();
  const UpdateJournal journal = Open();
  const UpdateSettings& settings = journal.settings();
  EXPECT_EQ(Settings().schema.tables, settings.schema.tables);
  EXPECT_EQ(Settings().schema.dims, settings.schema.dims);
  EXPECT_EQ(Settings().hosts, settings.hosts);
  EXPECT_EQ(Settings().reduction, settings.reduction);
  EXPECT_EQ(Exchange::kOwner, settings.exchange);
  EXPECT_EQ(Clipping::kGlobalNorm, settings.clipping);
  EXPECT_EQ(1.5f, settings.clip_limit);
  EXPECT_FALSE(journal.begun());
}

TEST_F(UpdateJournalTest, NextLeaderFindsWhatWasBegun) {
  UpdateJournal journal = Create();
  journal.Begin(Beginnings(7, 9));
  {
    const UpdateJournal next = Open();
    EXPECT_TRUE(next.begun());
    EXPECT_EQ(7u, next.beginning(0).version);
    EXPECT_EQ(9u, next.beginning(1).version);
    EXPECT_EQ(0.75, next.beginning(0).decay);
    EXPECT_EQ(0.5f, next.beginning(0).learning_rate);
    EXPECT_EQ(0.25f, next.beginning(1).learning_rate);
    EXPECT_EQ(0.125f, next.beginning(0).clip_factor);
    EXPECT_EQ(1.0f, next.beginning(1).clip_factor);
  }
  journal.End();
  EXPECT_FALSE(Open().begun());
}

TEST_F(UpdateJournalTest, RowInHandIsPutBackAndNoOther) {
  UpdateJournal journal = Create();
  journal.Begin(Beginnings(1, 1));
  for (int64_t lane = 0; lane < UpdateJournal::kLanes; ++lane) {
    const auto value = static_cast<float>(lane);
    std::vector<float> embedding(3, value), state(6, -value);
    const TableRow row = {embedding.data(), state.data(), 3, 6};
    const auto scribble = [&] { embedding[1] = state[0] = state[5] = 1e9f; };
    const auto is_back = [&] {
      return embedding == std::vector<float>(3, value) && state == std::vector<float>(6, -value);
    };
    JournalLane writing = journal.lane(lane);
    const UpdateJournal next = Open();
    const JournalLane reading = next.lane(lane);
    EXPECT_EQ(0, reading.done());
    scribble();
    reading.Undo(row);  // nothing was in hand
    EXPECT_FALSE(is_back());

    embedding.assign(3, value);
    state.assign(6, -value);
    writing.Arm(row);
    scribble();
    EXPECT_EQ(0, reading.done());
    reading.Undo(row);
    EXPECT_TRUE(is_back());
    // And again, if whoever put it back was killed too.
    scribble();
    reading.Undo(row);
    EXPECT_TRUE(is_back());

    writing.Disarm();
    EXPECT_EQ(1, reading.done());
    scribble();
    reading.Undo(row);
    EXPECT_FALSE(is_back());
  }
  EXPECT_OK(Open().CheckLanes(UpdateJournal::kLanes));
}

TEST_F(UpdateJournalTest, RowsWithoutState) {
  UpdateJournal journal = Create();
  journal.Begin(Beginnings(1, 1));
  std::vector<float> embedding = {1, 2, 3};
  const TableRow row = {embedding.data(), nullptr, 3, 0};
  journal.lane(5).Arm(row);
  embedding = {4, 5, 6};
  journal.lane(5).Undo(row);
  EXPECT_EQ((std::vector<float>{1, 2, 3}), embedding);
}

TEST_F(UpdateJournalTest, BeginForgetsTheLanesOfTheLastUpdate) {
  UpdateJournal journal = Create();
  std::vector<float> embedding(3);
  const TableRow row = {embedding.data(), nullptr, 3, 0};
  for (int64_t lane = 0; lane < UpdateJournal::kLanes; ++lane) {
    journal.lane(lane).Arm(row);
    journal.lane(lane).Disarm();
    journal.lane(lane).Arm(row);
  }
  journal.Begin(Beginnings(2, 2));
  embedding.assign(3, 8.0f);
  for (int64_t lane = 0; lane < UpdateJournal::kLanes; ++lane) {
    EXPECT_EQ(0, journal.lane(lane).done());
    journal.lane(lane).Undo(row);
  }
  EXPECT_EQ(std::vector<float>(3, 8.0f), embedding);
}

TEST_F(UpdateJournalTest, LanesOfAnotherUpdateAreRefused) {
  UpdateJournal journal = Create();
  journal.Begin(Beginnings(1, 1));
  EXPECT_OK(journal.CheckLanes(0));
  std::vector<float> embedding(3);
  const TableRow row = {embedding.data(), nullptr, 3, 0};
  JournalLane last = journal.lane(UpdateJournal::kLanes - 1);
  last.Arm(row);
  EXPECT_OK(journal.CheckLanes(1));  // whose row is the last lane's
  last.Disarm();
  EXPECT_OK(journal.CheckLanes(1));
  ExpectError(journal.CheckLanes(0), StatusCode::kDataLoss, {"lane 63", "1 of 0 rows"});
}

TEST_F(UpdateJournalTest, NoJournalIsNotFoundAndHalfOfOneIsNone) {
  ExpectError(OpenError(), StatusCode::kNotFound, {});
  Create();
  std::filesystem::rename(Path() + ".journal", Path() + ".journal.new");
  ExpectError(OpenError(), StatusCode::kNotFound, {});
}

TEST_F(UpdateJournalTest, ChangedConstantsAreRefused) {
  Create();
  const std::string file = Path() + ".journal", content = ReadFile(file);
  const UpdateSettings settings = Settings();
  std::vector<size_t> constants;
  for (size_t at = offsetof(JournalSegment, reduction); at < sizeof(JournalSegment); ++at) {
    constants.push_back(at);
  }
  for (size_t at = 0; at < settings.hosts.size() * sizeof(int64_t); ++at) {
    constants.push_back(kPageBytes + at);
  }
  // The tables start on the next cache line.
  const size_t tables = content.find("user");
  ASSERT_EQ(static_cast<size_t>(kPageBytes) + 64, tables);
  for (size_t at = 0; at < offsetof(JournalTable, beginning); ++at) {
    constants.push_back(tables + at);
    constants.push_back(tables + sizeof(JournalTable) + at);
  }
  for (const size_t at : constants) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      WriteFile(file, damaged);
      ExpectError(OpenError(), StatusCode::kDataLoss, {"journal", "damaged"});
    }
  }
  WriteFile(file, content);
  EXPECT_OK(OpenError());
}

TEST_F(UpdateJournalTest, JournalCutShortIsRefused) {
  Create();
  const std::string file = Path() + ".journal", content = ReadFile(file);
  for (size_t size = 1; size < content.size(); size += 511) {
    WriteFile(file, content.substr(0, size));
    ExpectError(OpenError(), StatusCode::kDataLoss, {});
  }
}

}  // namespace
}  // namespace tfhybrid::update_journal_test
