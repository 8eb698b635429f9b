// The threads that tfhybrid adds to TensorFlow's: one on which lookups wait for the leader, one on
// which the leader applies updates, and as many as the host has processors to help it.
//
// No thread of TensorFlow's ever waits for another process, and no rank waits for an update before
// its next lookup needs it.
#ifndef TFHYBRID_TF_BACKGROUND_H_
#define TFHYBRID_TF_BACKGROUND_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "core/util/parallel.h"

namespace tfhybrid {

// One thread that runs what it is given, first in first out, as long as the process lives.
class SerialThread {
 public:
  SerialThread();
  void Submit(std::function<void()> work);

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
};

// Where ops wait. First in first out cannot deadlock: what a wait needs was posted before by every
// rank that waits, and is done by the leader's ApplyingThread().
SerialThread& WaitingThread();

// Where the leader collects and applies updates, in the order in which it posted its own.
SerialThread& ApplyingThread();

// All processors that this process may use. The leader applies while the other ranks have nothing
// to do but wait, so it does not keep to its share of them.
ParallelFor HostThreads();

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_BACKGROUND_H_
