// WorkerThreads: a ParallelFor on threads of one's own, which start with the first loop that is
// worth it. They compute as TensorFlow's threads do.
//
// One loop at a time: Run() is one thread's at a time.
#ifndef TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_
#define TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tfhybrid {

class WorkerThreads {
 public:
  // `threads`: the caller of Run() included.
  explicit WorkerThreads(int threads) : threads_(threads) {}
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  // As ParallelFor says (core/util/parallel.h). Throws the first exception of `work`, once all
  // blocks that had begun have ended; others are not begun then.
  void Run(int64_t total, int64_t cost,
           const std::function<void(int64_t begin, int64_t end)>& work);

 private:
  // Blocks are taken by whoever is free.
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
  std::mutex mutex_;
  std::condition_variable begun_, left_;
  Job* job_ = nullptr;   // guarded by mutex_; of the loop that has blocks left
  uint64_t jobs_ = 0;    // guarded by mutex_; loops so far
  int at_work_ = 0;      // guarded by mutex_; workers that hold job_
  bool ending_ = false;  // guarded by mutex_
  std::vector<std::thread> workers_;
};

// Processors that this process may use.
int AllowedProcessors();

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_WORKER_THREADS_H_
