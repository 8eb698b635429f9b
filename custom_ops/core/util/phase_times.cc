#include "core/util/phase_times.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

std::array<std::atomic<int64_t>, kPhases> nanoseconds_in = {};

// Spans left to keep. Without a timeline it is 0, and a phase costs one look at it.
std::atomic<int64_t> room{0};
Mutex mutex;
std::vector<PhaseSpan>& Kept() {                           // guarded by mutex
  static auto* const kept = new std::vector<PhaseSpan>();  // threads may outlive static objects
  return *kept;
}

int32_t ThreadNumber() {
  static std::atomic<int32_t> next{0};
  thread_local const int32_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

int64_t SinceEpoch(PhaseClock::time_point time) {
  // Once: a wall clock that is set while the job runs would tear its spans apart.
  static const auto apart =
      std::chrono::system_clock::now().time_since_epoch() - PhaseClock::now().time_since_epoch();
  return std::chrono::nanoseconds(time.time_since_epoch() + apart).count();
}

void Keep(const PhaseSpan& span) {
  const MutexLock guard(mutex);
  if (room.load(std::memory_order_relaxed) == 0) return;
  room.fetch_sub(1, std::memory_order_relaxed);
  Kept().push_back(span);
}

}  // namespace

int64_t NanosecondsIn(Phase phase) {
  return nanoseconds_in[static_cast<size_t>(phase)].load(std::memory_order_relaxed);
}

void AddTime(Phase phase, PhaseClock::time_point begin, PhaseClock::time_point end) {
  nanoseconds_in[static_cast<size_t>(phase)].fetch_add(
      std::chrono::nanoseconds(end - begin).count(), std::memory_order_relaxed);
  if (room.load(std::memory_order_relaxed) == 0) return;
  Keep({static_cast<int32_t>(phase), ThreadNumber(), SinceEpoch(begin), SinceEpoch(end)});
}

void StartTimeline(int64_t max_spans) {
  const MutexLock guard(mutex);
  Kept().clear();
  Kept().reserve(static_cast<size_t>(std::max<int64_t>(max_spans, 0)));
  room.store(std::max<int64_t>(max_spans, 0), std::memory_order_relaxed);
}

std::vector<PhaseSpan> TimelineSpans() {
  const MutexLock guard(mutex);
  return Kept();
}

}  // namespace tfhybrid
