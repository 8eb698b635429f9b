#include "core/util/phase_times.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace tfhybrid {
namespace {

std::array<std::atomic<int64_t>, kPhases> nanoseconds_in = {};

}  // namespace

int64_t NanosecondsIn(Phase phase) {
  return nanoseconds_in[static_cast<size_t>(phase)].load(std::memory_order_relaxed);
}

void AddTime(Phase phase, int64_t nanoseconds) {
  nanoseconds_in[static_cast<size_t>(phase)].fetch_add(nanoseconds, std::memory_order_relaxed);
}

}  // namespace tfhybrid
