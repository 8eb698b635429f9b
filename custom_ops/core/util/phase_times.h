// The total time that this process has spent in each phase of its steps.
//
// Phases of different threads overlap: a rank computes while its leader applies.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_UTIL_PHASE_TIMES_H_
#define TFHYBRID_CORE_UTIL_PHASE_TIMES_H_

#include <chrono>
#include <cstdint>

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
};
inline constexpr int kPhases = 10;

int64_t NanosecondsIn(Phase phase);
void AddTime(Phase phase, int64_t nanoseconds);

// Adds the time from here to the end of its scope.
class PhaseTimer {
 public:
  explicit PhaseTimer(Phase phase) : phase_(phase), begin_(Clock::now()) {}
  ~PhaseTimer() {
    AddTime(phase_,
            std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count());
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  const Phase phase_;
  const Clock::time_point begin_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_PHASE_TIMES_H_
