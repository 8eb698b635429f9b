// SerialThread: one thread that runs submitted work, first in first out. It starts with the first
// work, and computes like TensorFlow's threads: the same sums must give the same bits on either.
//
// Thread-safe, except for Join().
#ifndef TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_
#define TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

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

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool joined_ = false;                      // guarded by mutex_
  std::thread thread_;                       // guarded by mutex_ until joined_
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_SERIAL_THREAD_H_
