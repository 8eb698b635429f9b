// Memory that runs out at every allocation of calls of the C interface, in a process that keeps
// running.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/c_api.h"
#include "core/util/status.h"
#include "shm/temporary_directory.h"
#include "util/failing_allocation.h"

namespace tfhybrid::c_api_memory_test {
namespace {

constexpr int64_t kRows = 3000;  // of several chunks, and of an index that grows
constexpr tfhybrid_table_config kItem = {"item", 2, 1 /* constant */, 0.5, 0, 99, {},
                                         0,      0, nullptr,          0};
constexpr tfhybrid_optimizer_config kAdagrad = {2, 0, 0.1f, 1e-7f, 0.9, 0.999, 0, 0,
                                                0, 0, 0,    0,     0,   0,     0};

class CApiMemoryTest : public testing::Test {
 protected:
  CApiMemoryTest() : keys_(kRows), rows_(2 * kRows, 1.5f) {
    std::iota(keys_.begin(), keys_.end(), -kRows / 2);
    const int64_t hosts[] = {0};
    ExpectOk(tfhybrid_engine_reserve(hosts, 1, 0, 0, &engine_));
  }
  ~CApiMemoryTest() override { tfhybrid_store_close(engine_, 0); }

  static void ExpectOk(int code) {
    EXPECT_EQ(static_cast<int>(StatusCode::kOk), code) << tfhybrid_last_error();
  }
  int OpenStore() {
    char text[256];
    int64_t size = 0;
    return tfhybrid_store_open(engine_, directory_.path().c_str(), "job", 0, "rank 0", 77, text,
                               sizeof(text), &size);
  }
  int WriteRows() {
    return tfhybrid_table_write_rows(engine_, "item", kRows, keys_.data(), rows_.data(), nullptr,
                                     nullptr);
  }
  void OpenTable() {
    ExpectOk(OpenStore());
    ExpectOk(tfhybrid_table_open(engine_, &kItem, 1000));
    ExpectOk(tfhybrid_table_set_optimizer(engine_, "item", &kAdagrad));
  }
  uint64_t Digest() {
    uint64_t digest = 0;
    ExpectOk(tfhybrid_table_digest(engine_, "item", &digest));
    return digest;
  }

  // Calls again and again, and lets another allocation fail each time. After it has failed what is
  // there must be as before; the last call, in which none fails, does it. Returns how many failed.
  int FailEverywhere(const std::function<int()>& call, const std::function<void()>& check) {
    for (int number = 1;; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number));
      FailAllocation(number);
      const int code = call();
      const bool failed = AllocationFailed();
      FailAllocation(0);
      if (code == static_cast<int>(StatusCode::kOk)) {
        if (!failed) return number - 1;
        check();  // what could not be had was not needed
        continue;
      }
      EXPECT_TRUE(failed);
      EXPECT_EQ(static_cast<int>(StatusCode::kResourceExhausted), code) << tfhybrid_last_error();
      check();
      if (HasFailure()) return number;
    }
  }

  TemporaryDirectory directory_;
  int64_t engine_ = 0;
  std::vector<int64_t> keys_;
  std::vector<float> rows_;
};

TEST_F(CApiMemoryTest, TablesOfOtherNamesAreOpenedAfterwards) {
  ExpectOk(OpenStore());
  int number = 0;
  std::string name;
  const auto open = [&] {
    tfhybrid_table_config config = kItem;
    config.name = name.c_str();
    return tfhybrid_table_open(engine_, &config, 1000);
  };
  const auto rename = [&] { name = "item" + std::to_string(++number); };
  rename();
  EXPECT_GT(FailEverywhere(open, rename), 3);
  ExpectOk(tfhybrid_table_open(engine_, &kItem, 1000));
  ExpectOk(WriteRows());
}

TEST_F(CApiMemoryTest, AnOptimizerIsSetAfterwards) {
  ExpectOk(OpenStore());
  ExpectOk(tfhybrid_table_open(engine_, &kItem, 1000));
  ExpectOk(WriteRows());
  FailEverywhere([&] { return tfhybrid_table_set_optimizer(engine_, "item", &kAdagrad); }, [] {});
  std::vector<float> states(2 * kRows);
  ExpectOk(tfhybrid_table_read_rows(engine_, "item", 0, kRows, keys_.data(), rows_.data(),
                                    states.data(), nullptr));
  EXPECT_EQ(std::vector<float>(2 * kRows, 0.1f), states);
}

TEST_F(CApiMemoryTest, RowsAreWrittenAfterwards) {
  OpenTable();
  EXPECT_GT(FailEverywhere([&] { return WriteRows(); }, [] {}), 3);
  tfhybrid_table_stats stats;
  ExpectOk(tfhybrid_table_stats_get(engine_, "item", &stats));
  EXPECT_EQ(kRows, stats.rows);
  std::vector<float> found(2 * kRows);
  ExpectOk(tfhybrid_table_lookup(engine_, "item", kRows, keys_.data(), found.data()));
  EXPECT_EQ(rows_, found);
}

TEST_F(CApiMemoryTest, ReadingChangesNothing) {
  OpenTable();
  ExpectOk(WriteRows());
  const uint64_t digest = Digest();
  std::vector<float> found(2 * kRows);
  std::vector<uint8_t> has(kRows);
  tfhybrid_table_stats stats;
  int64_t nan = 0;
  uint64_t number = 0;
  const std::function<int()> calls[] = {
      [&] { return tfhybrid_table_lookup(engine_, "item", kRows, keys_.data(), found.data()); },
      [&] {
        return tfhybrid_table_read_keys(engine_, "item", kRows, keys_.data(), has.data(),
                                        found.data(), nullptr, nullptr);
      },
      [&] { return tfhybrid_table_stats_get(engine_, "item", &stats); },
      [&] { return tfhybrid_table_count_nan(engine_, "item", &nan); },
      [&] { return tfhybrid_table_digest(engine_, "item", &number); },
      [&] { return tfhybrid_table_optimizer_start(engine_, "item", &number); },
  };
  for (const auto& call : calls) {
    FailEverywhere(call, [&] { EXPECT_EQ(digest, Digest()); });
    EXPECT_EQ(digest, Digest());
  }
}

TEST_F(CApiMemoryTest, RowsAreRemovedAndATableIsClearedAfterwards) {
  OpenTable();
  ExpectOk(WriteRows());
  const auto remove = [&] {
    return tfhybrid_table_remove_keys(engine_, "item", kRows / 2, keys_.data());
  };
  EXPECT_GT(FailEverywhere(remove, [] {}), 0);
  tfhybrid_table_stats stats;
  ExpectOk(tfhybrid_table_stats_get(engine_, "item", &stats));
  EXPECT_EQ(kRows - kRows / 2, stats.rows);
  FailEverywhere([&] { return tfhybrid_table_clear(engine_, "item"); }, [] {});
  EXPECT_EQ(0u, Digest());
  ExpectOk(WriteRows());
}

}  // namespace
}  // namespace tfhybrid::c_api_memory_test
