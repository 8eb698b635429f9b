// Readers beside a writer: whatever the table does, a row is its own, and whole.
//
// A row is stamped (all its floats are its key) before it is counted and indexed. So whoever looks
// a key up finds its initial value or its stamp, and never anything else; from the version on that
// gave it its row, the stamp.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shm/child_process.h"
#include "store/table_fixture.h"

namespace tfhybrid::torn_read_test {
namespace {

constexpr int64_t kDim = 16;
constexpr int64_t kReaders = 2;
constexpr int64_t kBatch = 512;
constexpr int64_t kRows = 200000;
constexpr int64_t kStepRows = 500;

// Lookups of keys that a test makes in all, at least.
int64_t WantedReads() {
  const char* reads = std::getenv("TFHYBRID_TORN_READS");
  return reads == nullptr ? 2000000 : std::atoll(reads);
}

// A step that gives the next keys rows.
void Grow(TableWriter* writer) {
  const int64_t first = writer->rows();
  const std::vector<int64_t> keys = KeysBetween(first, first + kStepRows);
  RowSet set;
  writer->Find(keys, &set);
  EXPECT_EQ(keys.size(), set.missing.size());
  EXPECT_OK(writer->Reserve(first + kStepRows));
  writer->Initialise(keys, set, first, 0, kStepRows);
  for (const int64_t key : keys) {
    const TableRow row = writer->chunks().Row(key);
    std::fill_n(row.embedding, row.dim, static_cast<float>(key));
  }
  writer->AddRows(kStepRows);
  writer->Index(keys, first, &set);
  writer->PublishVersion(writer->version() + 1);
}

class TornReadTest : public TableFixture {
 protected:
  // Keys that are written, or about to be, or never will be.
  static std::vector<int64_t> SomeKeys(int64_t written, std::mt19937_64* random) {
    const auto reach = static_cast<uint64_t>(written + 2 * kStepRows);
    std::vector<int64_t> keys(kBatch);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = static_cast<int64_t>((*random)() % reach);
      if (i % 4 == 0) keys[i] = -1 - keys[i];
    }
    return keys;
  }

  // Looks up random keys until the table is full.
  void ReadUntilFull(TableReader* reader, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t written = 0; written < kRows; reads_ += kBatch) {
      written = static_cast<int64_t>(reader->version()) * kStepRows;
      const std::vector<int64_t> keys = SomeKeys(written, &random);
      const std::vector<float> rows = Lookup(reader, keys);
      const std::vector<float> initial = InitialRows(config_, keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        const float* row = rows.data() + i * kDim;
        const auto stamp = static_cast<float>(keys[i]);
        const bool stamped = std::count(row, row + kDim, stamp) == kDim;
        const bool fresh = std::equal(row, row + kDim, initial.data() + i * kDim);
        const bool is_written = keys[i] >= 0 && keys[i] < written;
        wrong_ += is_written ? !stamped : !fresh && (keys[i] < 0 || !stamped);
      }
    }
  }

  void RemoveTable() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      std::filesystem::remove(entry.path());
    }
  }

  const TableConfig config_ = ConfigOf("item", kDim);
  std::atomic<int64_t> reads_{0};
  std::atomic<int64_t> wrong_{0};
};

TEST_F(TornReadTest, ThreadsBesideTheWriterReadWholeRows) {
  for (uint64_t seed = 0; reads_ < WantedReads(); RemoveTable()) {
    const auto writer = Create(config_);
    std::vector<std::thread> readers;
    for (int64_t i = 0; i < kReaders; ++i) {
      readers.emplace_back([&, seed = ++seed] { ReadUntilFull(Open("item").get(), seed); });
    }
    while (writer->rows() < kRows) Grow(writer.get());
    for (std::thread& reader : readers) reader.join();
    ASSERT_EQ(0, wrong_.load());
  }
  RecordProperty("reads", std::to_string(reads_));
}

TEST_F(TornReadTest, AnotherProcessReadsWholeRows) {
  for (uint64_t seed = 0; reads_ < WantedReads(); RemoveTable()) {
    ChildProcess writing([&] {
      TableWriter* writer = Create(config_).release();
      std::thread([writer] {
        while (writer->rows() < kRows) Grow(writer);
      }).detach();
    });
    ReadUntilFull(Open("item").get(), ++seed);
    ASSERT_EQ(0, wrong_.load());
  }
  RecordProperty("reads", std::to_string(reads_));
}

}  // namespace
}  // namespace tfhybrid::torn_read_test
