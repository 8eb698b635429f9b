// Counters of this process since it began, for monitoring.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_UTIL_COUNTERS_H_
#define TFHYBRID_CORE_UTIL_COUNTERS_H_

#include <cstdint>

namespace tfhybrid {

enum class Counter : int {
  kSteps,          // updates that a leader applied, of samples
  kSamples,        // of the batches that they were of, of all ranks
  kSentBytes,      // of gradients and rows, to other hosts or to all ranks
  kReceivedBytes,  // likewise, from all of them: what a collective returns of one's own too
  kFetchedRows,    // of sharded tables, that lookups read from other hosts
  kFetchedBytes,   // the same
  kServedRows,     // that lookups of other hosts read from this one
  kServedBytes,
};
inline constexpr int kCounters = 8;

int64_t CountOf(Counter counter);
void AddTo(Counter counter, int64_t count);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_COUNTERS_H_
