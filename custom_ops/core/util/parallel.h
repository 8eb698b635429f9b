// ParallelFor: runs a loop in parallel. TensorFlow kernels pass TensorFlow's worker threads, the
// engine its own threads, tests and the command line a plain loop.
#ifndef TFHYBRID_CORE_UTIL_PARALLEL_H_
#define TFHYBRID_CORE_UTIL_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

// Calls work(begin, end) over disjoint ranges that cover [0, total), possibly at once on several
// threads, and returns when all are done. `cost` is the rough time of one unit in nanoseconds.
// `work` must not call it again.
using ParallelFor = std::function<void(
    int64_t total, int64_t cost, const std::function<void(int64_t begin, int64_t end)>& work)>;

inline void RunInline(int64_t total, int64_t /*cost*/,
                      const std::function<void(int64_t begin, int64_t end)>& work) {
  if (total > 0) work(0, total);
}

// The same for work that may fail: does all of the work, and returns the first failure.
inline Status RunParts(const ParallelFor& parallel_for, int64_t total, int64_t cost,
                       const std::function<Status(int64_t begin, int64_t end)>& work) {
  Mutex mutex;
  Status first;  // guarded by mutex
  parallel_for(total, cost, [&](int64_t begin, int64_t end) {
    const Status status = work(begin, end);
    const MutexLock guard(mutex);
    if (first.ok()) first = status;
  });
  return first;
}

// Several sequences laid end to end as one range, so that one long sequence keeps every thread busy
// and many short ones do not cost a call each. `starts` holds the first position of each sequence
// and, at its end, the total. Calls work(sequence, begin, end) with positions within the sequence,
// for all that lie in [begin, end) of the range.
template <typename Work>
void ForEachPart(const std::vector<int64_t>& starts, int64_t begin, int64_t end, const Work& work) {
  auto part =
      static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) -
      1;
  for (; part + 1 < starts.size() && starts[part] < end; ++part) {
    const int64_t first = std::max(begin, starts[part]) - starts[part];
    const int64_t last = std::min(end, starts[part + 1]) - starts[part];
    if (first < last) work(part, first, last);
  }
}

// The same for parts that are worked on in parallel and may fail: work(sequence, begin, end)
// returns a Status, and this the first failure.
template <typename Work>
Status RunEachPart(const ParallelFor& parallel_for, const std::vector<int64_t>& starts,
                   int64_t cost, const Work& work) {
  return RunParts(parallel_for, starts.back(), cost, [&](int64_t begin, int64_t end) {
    Status failure;
    ForEachPart(starts, begin, end, [&](size_t part, int64_t first, int64_t last) {
      const Status status = work(part, first, last);
      if (failure.ok()) failure = status;
    });
    return failure;
  });
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_PARALLEL_H_
