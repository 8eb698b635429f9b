#include "tf/waiter.h"

#include <thread>
#include <utility>

namespace tfhybrid {

// Never destroyed: its thread may be waiting when the process exits.
Waiter& Waiter::Get() {
  static Waiter* const waiter = new Waiter();
  return *waiter;
}

Waiter::Waiter() { std::thread(&Waiter::Loop, this).detach(); }

void Waiter::Submit(std::function<void()> wait_then_go) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    queue_.push_back(std::move(wait_then_go));
  }
  arrived_.notify_one();
}

void Waiter::Loop() {
  while (true) {
    std::function<void()> next;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [this] { return !queue_.empty(); });
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

}  // namespace tfhybrid
