// WorkerThreads: a ParallelFor on its own threads, which start with the first loop that is large
// enough. They compute like TensorFlow's threads.
//
// One loop at a time: only one thread may be in Run().
#ifndef TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_
#define TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/util/mutex.h"
#include "core/util/parallel.h"

namespace tfhybrid {

class WorkerThreads {
 public:
  // `threads`: the caller of Run() included.
  explicit WorkerThreads(int threads) : threads_(threads) {}
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // A ParallelFor (core/util/parallel.h). If `work` throws, no further blocks are started, and the
  // first exception is thrown after the started blocks have ended.
  void Run(int64_t total, int64_t cost,
           const std::function<void(int64_t begin, int64_t end)>& work);
  // Calls Run(); valid as long as this object.
  const ParallelFor& parallel_for() const { return parallel_for_; }

 private:
  // Threads take blocks whenever they are free.
  struct Job {
    const std::function<void(int64_t, int64_t)>* work;
    int64_t total, block;
    std::atomic<int64_t> next{0};
    std::once_flag failed = {};
    std::exception_ptr failure = nullptr;  // written by one thread, read when all have ended

    void TakeBlocks();
  };

  void Start();
  void Loop();

  const int threads_;
  const ParallelFor parallel_for_ = [this](int64_t total, int64_t cost, const auto& work) {
    Run(total, cost, work);
  };
  Mutex mutex_;
  Condition begun_, left_;
  Job* job_ TFHYBRID_GUARDED_BY(mutex_) = nullptr;  // of the loop that has blocks left
  uint64_t jobs_ TFHYBRID_GUARDED_BY(mutex_) = 0;   // loops so far
  int at_work_ TFHYBRID_GUARDED_BY(mutex_) = 0;     // workers that hold job_
  bool ending_ TFHYBRID_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

// Processors that this process may use.
int AllowedProcessors();

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_
