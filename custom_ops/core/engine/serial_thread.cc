#include "core/engine/serial_thread.h"

#include <utility>

#include "core/util/flush_denormals.h"

namespace tfhybrid {

bool SerialThread::Submit(std::function<void()> work) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (joined_) return false;
  queue_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread(&SerialThread::Loop, this);
  arrived_.notify_one();
  return true;
}

void SerialThread::Join() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    joined_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SerialThread::Loop() {
  const FlushDenormals flush;
  while (true) {
    std::function<void()> next;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [this] { return joined_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

}  // namespace tfhybrid
