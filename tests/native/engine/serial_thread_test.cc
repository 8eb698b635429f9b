#include "core/engine/serial_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

namespace tfhybrid::serial_thread_test {
namespace {

TEST(SerialThreadTest, RunsWhatSeveralThreadsSubmitOneAtATimeInTheirOrder) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::vector<int>> seen(kThreads);
  int running = 0;  // guarded by nothing: the thread sanitizer sees two at once
  SerialThread thread;
  std::vector<std::thread> submitters;
  for (int t = 0; t < kThreads; ++t) {
    submitters.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE(thread.Submit([&, t, i] {
          ++running;
          seen[static_cast<size_t>(t)].push_back(i);
        }));
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  thread.Join();
  EXPECT_EQ(kThreads * kEach, running);
  for (const std::vector<int>& of_thread : seen) {
    ASSERT_EQ(static_cast<size_t>(kEach), of_thread.size());
    for (int i = 0; i < kEach; ++i) EXPECT_EQ(i, of_thread[static_cast<size_t>(i)]);
  }
}

TEST(SerialThreadTest, EndsWithWhatWasSubmittedAndTakesNoMore) {
  int ran = 0;
  SerialThread thread;
  EXPECT_TRUE(thread.Submit([&] {
    ++ran;
    // What work submits in turn is run, or refused, not lost.
    if (thread.Submit([&] { ++ran; })) ++ran;
  }));
  thread.Join();
  EXPECT_TRUE(ran == 1 || ran == 3) << ran;
  EXPECT_FALSE(thread.Submit([&] { ++ran; }));
  thread.Join();
}

TEST(SerialThreadTest, WithoutWorkThereIsNoThread) {
  SerialThread thread;
  thread.Join();
  EXPECT_FALSE(thread.Submit([] {}));
}

TEST(SerialThreadTest, CountsDenormalsAsZero) {
  std::atomic<float> denormal{std::numeric_limits<float>::min()};
  float halved = 1.0f;
  SerialThread thread;
  thread.Submit([&] { halved = denormal.load() * 0.5f; });
  thread.Join();
  EXPECT_EQ(0.0f, halved);
  EXPECT_NE(0.0f, denormal.load() * 0.5f) << "this thread keeps them";
}

}  // namespace
}  // namespace tfhybrid::serial_thread_test
