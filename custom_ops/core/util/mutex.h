// Mutex, MutexLock and Condition: like those of the standard library, with attributes by which
// clang checks that what a mutex guards is only used while it is held (-Wthread-safety, an error in
// scripts/check). Other compilers see none of the attributes.
//
//   class Counter {
//    public:
//     void Add(int count) {
//       const MutexLock guard(mutex_);
//       count_ += count;
//     }
//
//    private:
//     Mutex mutex_;
//     int count_ TFHYBRID_GUARDED_BY(mutex_) = 0;
//   };
//
// A function that is called with a mutex held is marked with TFHYBRID_REQUIRES. A lambda is a
// function of its own, which holds nothing: wait for a condition in a loop.
#ifndef TFHYBRID_CORE_UTIL_MUTEX_H_
#define TFHYBRID_CORE_UTIL_MUTEX_H_

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>

#if defined(__clang__)
#define TFHYBRID_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define TFHYBRID_THREAD_ATTRIBUTE(attribute)
#endif

// Of a member: it may be used, or what it points to, while that mutex is held.
#define TFHYBRID_GUARDED_BY(mutex) TFHYBRID_THREAD_ATTRIBUTE(guarded_by(mutex))
#define TFHYBRID_PT_GUARDED_BY(mutex) TFHYBRID_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// Of a function: its caller holds the mutex.
#define TFHYBRID_REQUIRES(...) TFHYBRID_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
// Of a function that the analysis cannot follow. A comment says why.
#define TFHYBRID_NO_THREAD_SAFETY_ANALYSIS TFHYBRID_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace tfhybrid {

class TFHYBRID_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // By these names std::unique_lock, of which the analysis knows nothing, takes it too.
  void lock() TFHYBRID_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() TFHYBRID_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  bool try_lock() TFHYBRID_THREAD_ATTRIBUTE(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  // Tells the analysis, and nobody else, that the caller holds it: by a lock that it does not see.
  void AssertHeld() const TFHYBRID_THREAD_ATTRIBUTE(assert_capability(this)) {}

 private:
  friend class Condition;
  std::mutex mutex_;
};

// Holds a mutex until the end of its block, except between Unlock() and Lock().
class TFHYBRID_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TFHYBRID_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() TFHYBRID_THREAD_ATTRIBUTE(release_capability()) {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() TFHYBRID_THREAD_ATTRIBUTE(release_capability()) {
    mutex_.unlock();
    held_ = false;
  }
  void Lock() TFHYBRID_THREAD_ATTRIBUTE(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// By POSIX alone: std::condition_variable waits for a time with pthread_cond_clockwait, which glibc
// has since 2.30, or by a clock that can be set.
class Condition {
 public:
  Condition() {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  // Waits until it is notified, or for no reason. REQUIRES: what is waited for is checked again.
  void Wait(Mutex& mutex) TFHYBRID_REQUIRES(mutex) {
    pthread_cond_wait(&condition_, mutex.mutex_.native_handle());
  }
  // The same, for a time at most; false where that is over.
  bool WaitFor(Mutex& mutex, std::chrono::milliseconds time) TFHYBRID_REQUIRES(mutex) {
    constexpr int64_t kSecond = 1'000'000'000;
    const std::chrono::nanoseconds end =
        (std::chrono::steady_clock::now() + time).time_since_epoch();
    const timespec until = {end.count() / kSecond, end.count() % kSecond};
    return pthread_cond_timedwait(&condition_, mutex.mutex_.native_handle(), &until) == 0;
  }
  void NotifyOne() { pthread_cond_signal(&condition_); }
  void NotifyAll() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_MUTEX_H_
