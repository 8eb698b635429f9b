#include "core/engine/serial_thread.h"

#include <utility>

#include "core/util/flush_denormals.h"

namespace tfhybrid {

bool SerialThread::Submit(std::function<void()> work) {
  const MutexLock guard(mutex_);
  if (joined_) return false;
  queue_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread(&SerialThread::Loop, this);
  arrived_.NotifyOne();
  return true;
}

void SerialThread::Join() {
  std::thread ending;
  {
    const MutexLock guard(mutex_);
    joined_ = true;
    ending = std::move(thread_);
    arrived_.NotifyOne();
  }
  if (ending.joinable()) ending.join();
}

void SerialThread::Loop() {
  const FlushDenormals flush;
  while (true) {
    std::function<void()> next;
    {
      const MutexLock guard(mutex_);
      while (!joined_ && queue_.empty()) arrived_.Wait(mutex_);
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

}  // namespace tfhybrid
