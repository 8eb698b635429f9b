// Waiter: the thread on which lookups wait for the leader, so that no thread of TensorFlow's ever
// does.
//
// One per process, first in first out. That cannot deadlock: what a wait needs is done by the
// leader's process, and the leader itself never waits here, because its updates and lookups are
// ordered by TensorFlow.
#ifndef TFHYBRID_TF_WAITER_H_
#define TFHYBRID_TF_WAITER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace tfhybrid {

class Waiter {
 public:
  static Waiter& Get();

  // Runs `wait_then_go` on the waiting thread, after those that came before.
  void Submit(std::function<void()> wait_then_go);

 private:
  Waiter();
  void Loop();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_WAITER_H_
