// Meetings: this rank's progress through the meetings of all ranks.
//
// A meeting is a point at which every rank waits for all others, such as the allreduce of a step.
// All ranks begin the same meetings in the same order, so number and signature show whether two
// ranks wait for each other or for different things. Nothing is sent from here: the watch reads it,
// and tells other ranks about a waiting rank (tfhybrid/job/watch.py).
//
// Thread-safe: kernels of a graph write it, the watch reads it. A mutex makes sure that a reader
// gets the number and signature of the same meeting; it is locked a few times per step.
#ifndef TFHYBRID_CORE_ENGINE_MEETINGS_H_
#define TFHYBRID_CORE_ENGINE_MEETINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/util/mutex.h"

namespace tfhybrid {

// Where a rank is. It is in a meeting if `begun` is greater than `ended`.
struct MeetingProgress {
  uint64_t begun = 0;        // number of the last meeting that was begun; the first is 1
  uint64_t ended = 0;        // number of the last meeting that has ended
  uint64_t signature = 0;    // of meeting `begun`: what the rank does in it
  uint64_t ordinal = 0;      // of that meeting in its series; the first is 1
  uint64_t waits_begun = 0;  // how often something had to wait for the version of a table
  uint64_t waits_ended = 0;
};

class Meetings {
 public:
  // Returns the number of the meeting that begins. `series` groups meetings that are counted
  // together for messages, such as the steps of one optimizer.
  uint64_t Begin(uint64_t signature, uint64_t series) {
    const MutexLock guard(mutex_);
    progress_.signature = signature;
    progress_.ordinal = ++counts_[series];
    return ++progress_.begun;
  }
  // A failed meeting never ends on its own; the end of a later one ends it too.
  void End(uint64_t number) {
    const MutexLock guard(mutex_);
    if (number > progress_.ended) progress_.ended = number;
  }
  // Records that something waits for a table, or for its owner, while the object lives. `awaited`
  // says for what, such as "rank 3 to send update 5", where a rank's own messages do not.
  class Wait {
   public:
    explicit Wait(Meetings* meetings, std::string awaited = {})
        : meetings_(meetings), number_(meetings->BeginWait(std::move(awaited))) {}
    ~Wait() { meetings_->EndWait(number_); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Meetings* const meetings_;
    const uint64_t number_;
  };
  MeetingProgress Get() const {
    const MutexLock guard(mutex_);
    return progress_;
  }
  // What the oldest wait that says so is for; empty if there is none.
  std::string Awaited() const {
    const MutexLock guard(mutex_);
    return awaited_.empty() ? std::string() : awaited_.begin()->second;
  }

 private:
  uint64_t BeginWait(std::string awaited) {
    const MutexLock guard(mutex_);
    const uint64_t number = ++progress_.waits_begun;
    if (!awaited.empty()) awaited_.emplace(number, std::move(awaited));
    return number;
  }
  void EndWait(uint64_t number) {
    const MutexLock guard(mutex_);
    ++progress_.waits_ended;
    awaited_.erase(number);
  }

  mutable Mutex mutex_;
  MeetingProgress progress_ TFHYBRID_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> counts_ TFHYBRID_GUARDED_BY(mutex_);      // of meetings by series
  std::map<uint64_t, std::string> awaited_ TFHYBRID_GUARDED_BY(mutex_);  // by number of the wait
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_MEETINGS_H_
