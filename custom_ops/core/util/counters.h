// Counters of this process since it began, for monitoring.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_UTIL_COUNTERS_H_
#define TFHYBRID_CORE_UTIL_COUNTERS_H_

#include <cstdint>

namespace tfhybrid {

enum class Counter : int {
  kSteps,          // updates with samples that a leader applied
  kSamples,        // samples of these updates, of all ranks
  kSentBytes,      // gradients and rows sent to other hosts or to all ranks
  kReceivedBytes,  // likewise received; from a collective, what this process sent is included
  kFetchedRows,    // rows of sharded tables that lookups read from other hosts
  kFetchedBytes,   // bytes of these
  kServedRows,     // rows that lookups of other hosts read from this one
  kServedBytes,    // bytes of these
  kKeysRead,       // keys that lookups outside of training read
  kUnseenKeys,     // of these, keys without a row
  kAheadHits,      // lookups whose keys were numbered ahead
  kAheadMisses,    // others of layers whose data set announces keys
};
inline constexpr int kCounters = 12;

int64_t CountOf(Counter counter);
void AddTo(Counter counter, int64_t count);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_COUNTERS_H_
