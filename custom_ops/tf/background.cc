#include "tf/background.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "tensorflow/core/platform/denormal.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/setround.h"
#include "tensorflow/core/platform/threadpool.h"

namespace tfhybrid {
namespace {

int Processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

}  // namespace

SerialThread::SerialThread() { std::thread(&SerialThread::Loop, this).detach(); }

void SerialThread::Submit(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    queue_.push_back(std::move(work));
  }
  arrived_.notify_one();
}

void SerialThread::Loop() {
  // As on TensorFlow's own threads: the same sums must give the same bits on either.
  const tensorflow::port::ScopedFlushDenormal flush;
  const tensorflow::port::ScopedSetRound round(FE_TONEAREST);
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

// None of these is ever destroyed: their threads may be at work when the process exits.

SerialThread& WaitingThread() {
  static SerialThread* const thread = new SerialThread();
  return *thread;
}

SerialThread& ApplyingThread() {
  static SerialThread* const thread = new SerialThread();
  return *thread;
}

ParallelFor HostThreads() {
  static tensorflow::thread::ThreadPool* const pool =
      new tensorflow::thread::ThreadPool(tensorflow::Env::Default(), "tfhybrid", Processors());
  return
      [](int64_t total, int64_t cost, const std::function<void(int64_t begin, int64_t end)>& work) {
        if (total > 0) pool->ParallelFor(total, cost, work);
      };
}

}  // namespace tfhybrid
