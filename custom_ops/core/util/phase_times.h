// The total time that this process has spent in each phase of its steps, and, if it is asked for, a
// timeline: when each thread was in which of them.
//
// Phases of different threads overlap: a rank computes while its leader applies.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_UTIL_PHASE_TIMES_H_
#define TFHYBRID_CORE_UTIL_PHASE_TIMES_H_

#include <chrono>
#include <cstdint>
#include <vector>

namespace tfhybrid {

enum class Phase : int {
  kWait,      // an op waits until the updates before it are applied
  kFetch,     // rows of sharded tables are brought from their owners
  kLookup,    // embeddings are read
  kSum,       // a rank's gradients are summed by key
  kPost,      // and posted
  kCollect,   // the leader waits for the messages of its ranks
  kExchange,  // hosts exchange what their leaders merged
  kPlan,      // the leader merges the keys of all, and makes room
  kApply,     // makes rows, updates them, and settles
  kSettle,    // counts waiting keys, and evicts
  kPass,      // rows of a pass are on their way, which no thread waits for
  kAhead,     // the keys of a batch are numbered before its lookup
};
inline constexpr int kPhases = 12;

using PhaseClock = std::chrono::steady_clock;

int64_t NanosecondsIn(Phase phase);
// Notes that the calling thread was in a phase, or has seen the end of one.
void AddTime(Phase phase, PhaseClock::time_point begin, PhaseClock::time_point end);

// A stay of a thread in a phase.
struct PhaseSpan {
  int32_t phase;
  int32_t thread;      // a number that is the thread's own
  int64_t begin, end;  // nanoseconds since 1970, so that spans of several hosts fit together
};

// Keeps the first `max_spans` spans from now on. Those that were kept before are forgotten.
void StartTimeline(int64_t max_spans);
// The spans that were kept, in the order of their ends.
std::vector<PhaseSpan> TimelineSpans();

// Adds the time from here to the end of its scope.
class PhaseTimer {
 public:
  explicit PhaseTimer(Phase phase) : phase_(phase), begin_(PhaseClock::now()) {}
  ~PhaseTimer() { AddTime(phase_, begin_, PhaseClock::now()); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  const Phase phase_;
  const PhaseClock::time_point begin_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_PHASE_TIMES_H_
