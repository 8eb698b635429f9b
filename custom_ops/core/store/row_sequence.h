// The sequence lock of a table's rows: odd while they change. A reader that finds the same even
// number before and after has read rows of one version, in whatever process it is.
//
// The writer's half; one writer, which never waits. The reader's is TableReader::Sequence(),
// SequenceIs() and WaitForQuiet().
#ifndef TFHYBRID_CORE_STORE_ROW_SEQUENCE_H_
#define TFHYBRID_CORE_STORE_ROW_SEQUENCE_H_

#include <atomic>
#include <cstdint>

#include "core/shm/wait_word.h"
#include "core/store/layout.h"

namespace tfhybrid {

// A dead leader may have called it already: calling it again changes nothing.
inline void BeginRowChange(TableCounters* counters) {
  __atomic_store_n(&counters->sequence, counters->sequence | 1, __ATOMIC_RELAXED);
  // No store to a row, by this thread or by those that it hands work, may be seen before that.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Row numbers that were read before are worth nothing from now on.
inline void NoteMoves(TableCounters* counters) {
  __atomic_store_n(&counters->moves, counters->moves + 1, __ATOMIC_RELEASE);
}

// Whoever sees the even number sees all rows as they are now. Wakes those who wait for it.
inline void EndRowChange(TableCounters* counters) {
  PublishWord(&counters->sequence, (counters->sequence | 1) + 1);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_SEQUENCE_H_
