#include "core/util/counters.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace tfhybrid {
namespace {

std::array<std::atomic<int64_t>, kCounters> counts = {};

}  // namespace

int64_t CountOf(Counter counter) {
  return counts[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
}

void AddTo(Counter counter, int64_t count) {
  counts[static_cast<size_t>(counter)].fetch_add(count, std::memory_order_relaxed);
}

}  // namespace tfhybrid
