// SerialThread: one thread that runs submitted work, first in first out. It starts with the first
// work, and computes like TensorFlow's threads: the same sums must give the same bits on either.
//
// Thread-safe, except for Join().
#ifndef TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_
#define TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "core/util/mutex.h"

namespace tfhybrid {

class SerialThread {
 public:
  SerialThread() = default;
  ~SerialThread() { Join(); }
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  // Whether the work will be run: not after Join().
  bool Submit(std::function<void()> work);
  // Runs all submitted work, and ends the thread. Must not be called on the thread itself.
  void Join();

 private:
  void Loop();

  Mutex mutex_;
  Condition arrived_;
  std::deque<std::function<void()>> queue_ TFHYBRID_GUARDED_BY(mutex_);
  bool joined_ TFHYBRID_GUARDED_BY(mutex_) = false;
  std::thread thread_ TFHYBRID_GUARDED_BY(mutex_);  // none after Join()
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_
