#include "core/util/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tfhybrid {
namespace {

TEST(MutexTest, OneThreadAtATimeHoldsIt) {
  Mutex mutex;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        const MutexLock guard(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(40000, count);
}

TEST(MutexTest, ALockCanBeGivenUpForAWhile) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    lock.Unlock();
    ASSERT_TRUE(mutex.try_lock());
    mutex.unlock();
    lock.Lock();
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
    lock.Unlock();
  }
  ASSERT_TRUE(mutex.try_lock());  // the lock did not give it up once more
  mutex.unlock();
}

TEST(ConditionTest, AThreadWaitsForAnother) {
  Mutex mutex;
  Condition changed;
  int turn = 0;
  std::thread other([&] {
    const MutexLock guard(mutex);
    while (turn != 1) changed.Wait(mutex);
    turn = 2;
    changed.NotifyAll();
  });
  {
    const MutexLock guard(mutex);
    turn = 1;
    changed.NotifyOne();
    while (turn != 2) changed.Wait(mutex);
  }
  other.join();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(ConditionTest, WaitingForATimeEndsAndHoldsTheMutexAgain) {
  Mutex mutex;
  Condition changed;
  const MutexLock guard(mutex);
  while (changed.WaitFor(mutex, std::chrono::milliseconds(1))) {
  }
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
}

}  // namespace
}  // namespace tfhybrid
