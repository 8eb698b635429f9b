// What recovery says of a half done update whose journal or messages were damaged since.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "store/segment_files.h"
#include "update/recovery_fixture.h"

namespace tfhybrid::damaged_update_test {
namespace {

constexpr size_t kMailboxConstants = offsetof(MailboxSegment, failed);

// Bytes [first, second) of a file.
using Range = std::pair<size_t, size_t>;

class DamagedUpdateTest : public RecoveryTest {
 protected:
  // Kills the third update while its rows are being updated, and keeps the files.
  void SetUp() override {
    for (int64_t point = 1; !IsHalfDone(); ++point) {
      ASSERT_TRUE(KilledInUpdate(point, plan_, 2));
    }
    files_ = ReadFiles(Directory());
  }

  // With some rows done and some not.
  bool IsHalfDone() const {
    const auto journal =
        UpdateJournal::Open(Directory() + "/" + kTrainingUpdate, TrainingStore("", 0).token);
    if (!journal.ok() || !journal.value().begun()) return false;
    int64_t done = 0;
    for (int64_t lane = 0; lane < UpdateJournal::kLanes; ++lane) {
      done += journal.value().lane(lane).done();
    }
    return done > 10;
  }

  Result<std::unique_ptr<Store>> RecoverFrom(const Files& files) const {
    std::filesystem::remove_all(Directory());
    mkdir(Directory().c_str(), 0700);
    WriteFiles(files, Directory());
    return Recover();
  }

  // Flips each bit of the range and recovers. With `known` damage that stays unnoticed has to be
  // harmless; else any answer will do.
  void FlipBits(const std::string& name, const Range& range, bool known) const {
    ASSERT_EQ(1u, files_.count(name)) << name;
    Files files = files_;
    for (size_t at = range.first; at < range.second; ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        SCOPED_TRACE(name + ", byte " + std::to_string(at) + ", bit " + std::to_string(bit));
        char* byte = &files[name][at];
        *byte = static_cast<char>(*byte ^ (1 << bit));
        const auto recovered = RecoverFrom(files);
        if (!recovered.ok()) {
          ExpectError(recovered.status(), StatusCode::kDataLoss, {});
        } else if (known) {
          EXPECT_EQ("", Difference(*recovered.value(), models_.after, true));
        }
        *byte = static_cast<char>(*byte ^ (1 << bit));
      }
      ASSERT_FALSE(HasFailure());
    }
  }

  size_t TablesAt() const { return files_.at(Journal()).find(plan_.tables[0].config.name); }
  static std::string Journal() { return std::string(kTrainingUpdate) + ".journal"; }
  static std::string MailboxFile(int rank, const std::string& suffix) {
    return kTrainingUpdate + ("." + std::to_string(rank)) + ".mail" + suffix;
  }

  const TrainingPlan plan_ = SmallPlan();
  const Models models_{plan_, 2};
  Files files_;
};

TEST_F(DamagedUpdateTest, UndamagedIsFinished) {
  const auto recovered = RecoverFrom(files_);
  ASSERT_OK(recovered);
  EXPECT_EQ("", Difference(*recovered.value(), models_.after, true));
}

TEST_F(DamagedUpdateTest, JournalsSizesHostsNamesAndDims) {
  FlipBits(Journal(), {0, sizeof(SegmentHeader)}, true);
  FlipBits(Journal(), {offsetof(JournalSegment, reduction), sizeof(JournalSegment)}, true);
  FlipBits(Journal(), {kPageBytes, kPageBytes + plan_.hosts.size() * sizeof(int64_t)}, true);
  const size_t tables = TablesAt();
  for (size_t t = 0; t < plan_.tables.size(); ++t) {
    const size_t table = tables + t * sizeof(JournalTable);
    FlipBits(Journal(), {table, table + 16}, true);
    FlipBits(Journal(),
             {table + offsetof(JournalTable, dim), table + offsetof(JournalTable, beginning)},
             true);
  }
}

TEST_F(DamagedUpdateTest, JournalsVersionsAndLanes) {
  const size_t tables = TablesAt();
  for (size_t t = 0; t < plan_.tables.size(); ++t) {
    const size_t version = tables + t * sizeof(JournalTable) + offsetof(JournalTable, beginning);
    FlipBits(Journal(), {version, version + sizeof(uint64_t)}, false);
  }
  const size_t lanes = (tables + plan_.tables.size() * sizeof(JournalTable) + 63) / 64 * 64;
  JournalSegment segment;
  std::memcpy(&segment, files_[Journal()].data(), sizeof(segment));
  for (size_t lane = 0; lane < 3; ++lane) {
    const size_t at = lanes + lane * segment.lane_bytes;
    FlipBits(Journal(), {at, at + 2 * sizeof(uint64_t)}, false);
  }
}

TEST_F(DamagedUpdateTest, MailboxesSizesAndGenerations) {
  for (int rank = 0; rank < 2; ++rank) {
    FlipBits(MailboxFile(rank, ""), {0, kMailboxConstants}, true);
  }
}

TEST_F(DamagedUpdateTest, MessagesSizesAndCounts) {
  const size_t counts = (2 + plan_.tables.size()) * sizeof(int64_t);
  for (int rank = 0; rank < 2; ++rank) {
    FlipBits(MailboxFile(rank, ".1"), {0, sizeof(SegmentHeader)}, true);
    FlipBits(MailboxFile(rank, ".1"), {kPageBytes, kPageBytes + counts}, true);
  }
}

TEST_F(DamagedUpdateTest, MissingFiles) {
  for (const auto& [name, content] : files_) {
    // Without its journal nobody knows of an update.
    if (name == Journal()) continue;
    SCOPED_TRACE(name);
    Files files = files_;
    files.erase(name);
    const auto recovered = RecoverFrom(files);
    if (recovered.ok()) {
      EXPECT_EQ("rank-", name.substr(0, 5));
    } else if (name == "store") {
      ExpectError(recovered.status(), StatusCode::kNotFound, {});
    } else {
      ExpectError(recovered.status(), StatusCode::kDataLoss, {});
    }
  }
}

}  // namespace
}  // namespace tfhybrid::damaged_update_test
