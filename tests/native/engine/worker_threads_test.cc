#include "core/engine/worker_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace tfhybrid::worker_threads_test {
namespace {

TEST(WorkerThreadsTest, EveryUnitOnceWhateverTheLoop) {
  for (const int threads : {1, 2, 3, 8}) {
    WorkerThreads workers(threads);
    for (const int64_t total : {0, 1, 2, 7, 64, 1000, 100003}) {
      for (const int64_t cost : {0, 1, 500, 1000000}) {
        std::vector<int> times(static_cast<size_t>(total));  // a race, if a unit came twice
        workers.Run(total, cost, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
        });
        for (const int count : times) ASSERT_EQ(1, count) << threads << " threads, " << total;
      }
    }
  }
}

TEST(WorkerThreadsTest, OneLoopAfterTheOther) {
  WorkerThreads workers(4);
  int64_t sum = 0;
  for (int loop = 0; loop < 2000; ++loop) {
    std::vector<int64_t> squares(40);
    workers.Run(40, 100000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) squares[static_cast<size_t>(i)] = i * i;
    });
    for (const int64_t square : squares) sum += square;
  }
  EXPECT_EQ(2000 * 20540, sum);
}

// Units that wait for each other end only if as many threads as they are run at once.
TEST(WorkerThreadsTest, AsManyAtOnceAsThereAreThreads) {
  constexpr int kThreads = 3;
  WorkerThreads workers(kThreads);
  std::atomic<int> arrived{0};
  workers.Run(kThreads, 1000000, [&](int64_t begin, int64_t end) {
    arrived += static_cast<int>(end - begin);
    while (arrived < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(kThreads, arrived);
}

TEST(WorkerThreadsTest, WorkersCountDenormalsAsZero) {
  WorkerThreads workers(2);
  std::atomic<float> denormal{std::numeric_limits<float>::min()};
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::set<float> of_workers;  // guarded by mutex
  workers.Run(2, 1000000, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) return;
    const std::lock_guard<std::mutex> guard(mutex);
    of_workers.insert(denormal.load() * 0.5f);
  });
  EXPECT_EQ(std::set<float>{0.0f}, of_workers);
}

}  // namespace
}  // namespace tfhybrid::worker_threads_test
