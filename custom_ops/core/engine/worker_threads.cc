#include "core/engine/worker_threads.h"

#include <sched.h>

#include <algorithm>

#include "core/util/flush_denormals.h"

namespace tfhybrid {
namespace {

// A smaller block is not worth waking a thread.
constexpr int64_t kBlockNs = 20000;
// So that threads that start late, or are slower, still find blocks to take.
constexpr int64_t kBlocksPerThread = 4;

}  // namespace

int AllowedProcessors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

void WorkerThreads::Job::TakeBlocks() {
  while (true) {
    const int64_t begin = next.fetch_add(block, std::memory_order_relaxed);
    if (begin >= total) return;
    try {
      (*work)(begin, std::min(begin + block, total));
    } catch (...) {
      std::call_once(failed, [this] { failure = std::current_exception(); });
      next = total;
    }
  }
}

WorkerThreads::~WorkerThreads() {
  {
    const MutexLock guard(mutex_);
    ending_ = true;
  }
  begun_.NotifyAll();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerThreads::Run(int64_t total, int64_t cost,
                        const std::function<void(int64_t begin, int64_t end)>& work) {
  if (total <= 0) return;
  const int64_t worth = std::max<int64_t>(1, kBlockNs / std::max<int64_t>(1, cost));
  const int64_t even = (total - 1) / (kBlocksPerThread * threads_) + 1;
  Job job{&work, total, std::max(worth, even)};
  if (threads_ == 1 || total <= job.block) {
    work(0, total);
    return;
  }
  Start();
  {
    const MutexLock guard(mutex_);
    job_ = &job;
    ++jobs_;
  }
  begun_.NotifyAll();
  job.TakeBlocks();
  const MutexLock guard(mutex_);
  job_ = nullptr;
  while (at_work_ != 0) left_.Wait(mutex_);
  if (job.failure != nullptr) std::rethrow_exception(job.failure);
}

void WorkerThreads::Start() {
  while (static_cast<int>(workers_.size()) + 1 < threads_) {
    workers_.emplace_back(&WorkerThreads::Loop, this);
  }
}

void WorkerThreads::Loop() {
  const FlushDenormals flush;
  uint64_t seen = 0;
  MutexLock lock(mutex_);
  while (true) {
    while (!ending_ && (job_ == nullptr || jobs_ == seen)) begun_.Wait(mutex_);
    if (ending_) return;
    seen = jobs_;
    Job* const job = job_;
    ++at_work_;
    lock.Unlock();
    job->TakeBlocks();
    lock.Lock();
    if (--at_work_ == 0) left_.NotifyOne();
  }
}

}  // namespace tfhybrid
