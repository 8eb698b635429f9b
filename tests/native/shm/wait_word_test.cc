#include "core/shm/wait_word.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/shm/mapped_file.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::wait_word_test {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// Far longer than a wake-up takes and shorter than the test's own limit: a wake-up that is lost
// shows as a test that ran this long.
constexpr int kForeverMs = 60000;

// One word mapped twice, as the leader and as another rank have it.
class WaitWordTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<MappedFile> writer = MappedFile::Create(directory_.File("word"), 4096, "a test");
    ASSERT_OK(writer);
    writer_ = writer.Take();
    Result<MappedFile> reader = MappedFile::OpenReadOnly(directory_.File("word"));
    ASSERT_OK(reader);
    reader_ = reader.Take();
  }
  uint64_t* writable() { return reinterpret_cast<uint64_t*>(writer_.mutable_data()); }
  const uint64_t* read_only() { return reinterpret_cast<const uint64_t*>(reader_.data()); }
  // As waiting code does: a wait may end early, and then is asked again.
  void WaitFor(uint64_t value) {
    const auto start = steady_clock::now();
    while (!WaitWord(read_only(), value, kForeverMs)) continue;
    EXPECT_LT(steady_clock::now() - start, seconds(kForeverMs / 2000));
  }

  TemporaryDirectory directory_;
  MappedFile writer_;
  MappedFile reader_;
};

TEST_F(WaitWordTest, PublishWakesAThreadThatWaitsOnAReadOnlyMapping) {
  std::thread waiter([&] {
    for (uint64_t value = 1; value <= 1000; ++value) {
      WaitFor(value);
      EXPECT_GE(LoadWord(read_only() + 1), value);
    }
  });
  for (uint64_t value = 1; value <= 1000; ++value) {
    __atomic_store_n(writable() + 1, value, __ATOMIC_RELAXED);
    PublishWord(writable(), value);
    if (value % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waiter.join();
}

TEST_F(WaitWordTest, PublishWakesAnotherProcess) {
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    for (uint64_t value = 1; !stop; ++value) {
      PublishWord(writable(), value);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  RunInChild([&] {
    for (int i = 0; i < 50; ++i) WaitFor(LoadWord(read_only()) + 1);
  });
  stop = true;
  publisher.join();
}

TEST_F(WaitWordTest, ReachedValueReturnsAtOnce) {
  PublishWord(writable(), 3);
  EXPECT_TRUE(WaitWord(read_only(), 3, kForeverMs));
  EXPECT_TRUE(WaitWord(read_only(), 0, kForeverMs));
}

TEST_F(WaitWordTest, GivesUpAfterItsTime) { EXPECT_FALSE(WaitWord(read_only(), 1, 5)); }

TEST_F(WaitWordTest, CarryIntoTheHighHalfIsSeen) {
  PublishWord(writable(), UINT32_MAX);
  std::thread waiter([&] { WaitFor(uint64_t{1} << 32); });
  PublishWord(writable(), uint64_t{1} << 32);
  waiter.join();
  EXPECT_EQ(uint64_t{1} << 32, LoadWord(read_only()));
}

}  // namespace
}  // namespace tfhybrid::wait_word_test
