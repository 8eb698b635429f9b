// Rows that are read beside updates are those after one of them, in all tables alike: in EngineJob
// each of their numbers is then the version.
#include "core/engine/version_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/engine/held_writers.h"
#include "core/store/table_loader.h"
#include "engine/engine_job.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::version_read_test {
namespace {

constexpr int kSoonMs = 50;
constexpr int kTimeoutMs = 60000;
const MessageSchema kSchema = {{"user", "item"}, {16, 3}};

// Both tables as a process has them open, and room for their rows.
class Reader {
 public:
  Reader(std::shared_ptr<Engine> engine, OpenTables tables, std::vector<int64_t> keys)
      : engine_(std::move(engine)), tables_(std::move(tables)), keys_(std::move(keys)) {
    for (const auto& table : tables_) {
      rows_.emplace_back(keys_.size() * static_cast<size_t>(table->reader->dim()));
    }
  }

  Result<std::vector<uint64_t>> Read(uint64_t min_version, int timeout_ms) {
    std::vector<TableRead> reads;
    for (size_t t = 0; t < tables_.size(); ++t) {
      reads.push_back({tables_[t], min_version, keys_, rows_[t].data()});
    }
    return engine_->tables().Read(reads, timeout_ms);
  }

  // Whether every number that was read is `value`.
  bool All(float value) const {
    return std::all_of(rows_.begin(), rows_.end(), [&](const std::vector<float>& rows) {
      return std::count(rows.begin(), rows.end(), value) == static_cast<int64_t>(rows.size());
    });
  }

 private:
  const std::shared_ptr<Engine> engine_;
  const OpenTables tables_;
  const std::vector<int64_t> keys_;
  std::vector<std::vector<float>> rows_;
};

class VersionReadTest : public testing::Test {
 protected:
  // As another rank of the host, in this process or another.
  Reader Join(const std::vector<int64_t>& keys) const {
    std::vector<std::string> reclaimed;
    auto engine =
        Engine::Open({directory_.path(), "job", 1, "rank 1", kToken}, {}, &reclaimed).Take();
    OpenTables tables;
    for (size_t t = 0; t < kSchema.tables.size(); ++t) {
      tables.push_back(
          engine->store().OpenNamed(EngineJob::ConfigOf(kSchema, t), kTimeoutMs).Take());
    }
    return Reader(std::move(engine), std::move(tables), keys);
  }

  TemporaryDirectory directory_;
};

TEST_F(VersionReadTest, BesideSteadyUpdatesOfAnotherProcess) {
  const std::vector<int64_t> keys = KeysBetween(-1000, 1000);
  ChildProcess training([&] {
    const auto* job = new EngineJob(directory_.path(), "job", kSchema);
    std::thread([job, &keys] {
      const std::vector<int64_t> mine = keys;
      while (job->Wait().ok()) job->Train(mine);
    }).detach();
  });
  Reader reader = Join(keys);
  uint64_t last = 0;
  for (int reads = 0; reads < 300; ++reads) {
    const uint64_t wanted = last + (reads % 2 == 0 ? 1 : 0);
    const auto versions = reader.Read(wanted, kTimeoutMs);
    ASSERT_OK(versions);
    EXPECT_EQ(versions.value()[0], versions.value()[1]);
    EXPECT_GE(versions.value()[0], wanted);
    last = versions.value()[0];
    ASSERT_TRUE(reader.All(static_cast<float>(last))) << "torn at version " << last;
  }
}

// In the middle of an update: half of the rows of the first table are new.
TEST_F(VersionReadTest, AnUpdateUnderWayIsWaitedFor) {
  const std::vector<int64_t> keys = KeysBetween(0, 1000);
  const EngineJob job(directory_.path(), "job", kSchema);
  Reader reader = Join(keys);
  job.Train(keys);
  ASSERT_OK(job.Wait());
  job.Post(keys);
  bool torn = false;
  std::optional<HeldWriters> writers(job.tables);  // the update before has ended too
  ASSERT_OK(job.update->host_update->Apply(
      job.update->host_update->Collect().Take(), job.Numbers(), writers->all(),
      [&](int64_t total, int64_t, const auto& work) {
        work(0, total / 4);
        if (total == UpdateJournal::kLanes) {
          const std::vector<float> seen = job.Firsts(0, keys);
          torn = std::count(seen.begin(), seen.end(), 1.0f) > 0 &&
                 std::count(seen.begin(), seen.end(), 2.0f) > 0;
          ExpectError(reader.Read(0, kSoonMs).status(), StatusCode::kDeadlineExceeded, {"50 ms"});
        }
        work(total / 4, total);
      }));
  writers.reset();
  EXPECT_TRUE(torn) << "a lookup that does not ask sees the half";
  EXPECT_EQ((std::vector<uint64_t>{2, 2}), reader.Read(2, kSoonMs).value());
  EXPECT_TRUE(reader.All(2.0f));
}

TEST_F(VersionReadTest, TheLeadersOwnProcessWaitsForItsLock) {
  const EngineJob job(directory_.path(), "job", kSchema);
  job.Train({1, 2});
  ASSERT_OK(job.Wait());
  Reader reader(job.engine, job.tables, {1, 2});
  std::atomic<bool> changing{true}, read{false};
  std::thread reading;
  {
    const MutexLock guard(job.tables[0]->writing);
    job.tables[0]->writer->BeginChange();
    reading = std::thread([&] {
      EXPECT_OK(reader.Read(1, kTimeoutMs));
      EXPECT_FALSE(changing);
      read = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(kSoonMs));
    EXPECT_FALSE(read);
    changing = false;
    job.tables[0]->writer->EndChange();
  }
  reading.join();
  EXPECT_TRUE(reader.All(1.0f));
}

TEST_F(VersionReadTest, AVersionToComeIsWaitedForUpToTheLimit) {
  const EngineJob job(directory_.path(), "job", kSchema);
  Reader reader = Join({1});
  ExpectError(reader.Read(1, kSoonMs).status(), StatusCode::kDeadlineExceeded, {"50 ms"});
  std::thread reading([&] {
    const auto versions = reader.Read(2, kTimeoutMs);
    EXPECT_OK(versions);
    EXPECT_GE(versions.value()[0], 2u);
  });
  for (int step = 0; step < 2; ++step) {
    job.Train({1});
    EXPECT_OK(job.Wait());
  }
  reading.join();
  EXPECT_TRUE(reader.All(2.0f));
}

TEST_F(VersionReadTest, LoadingIsAChangeToo) {
  const EngineJob job(directory_.path(), "job", kSchema);
  TableWriter* const writer = job.tables[1]->writer.get();
  const TableReader& reader = *job.tables[1]->reader;
  const uint64_t before = reader.Sequence();
  ASSERT_OK(WriteRows(writer, {5}, {1, 2, 3}));
  EXPECT_FALSE(reader.SequenceIs(before));
  const uint64_t written = reader.Sequence();
  EXPECT_EQ(0u, written % 2);
  const std::vector<int64_t> gone = {5};
  ASSERT_OK(TableLoader(writer).RemoveKeys(gone));
  EXPECT_FALSE(reader.SequenceIs(written));
  const uint64_t removed = reader.Sequence();
  ASSERT_OK(TableLoader(writer).Clear());
  EXPECT_FALSE(reader.SequenceIs(removed));
  EXPECT_TRUE(reader.WaitForQuiet(0));
}

TEST_F(VersionReadTest, NothingIsReadOfNoTable) {
  const EngineJob job(directory_.path(), "job", kSchema);
  EXPECT_EQ(std::vector<uint64_t>(), job.engine->tables().Read({}, kSoonMs).value());
}

}  // namespace
}  // namespace tfhybrid::version_read_test
