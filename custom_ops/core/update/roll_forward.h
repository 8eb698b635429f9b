// Rolling forward: hosts that died one update apart come together at the later one.
//
// A leader leaves the messages of its last update in its mailbox until the next. It posts no next
// one before the ranks of every host have taken part in that, and where state is kept
// (tf/keep_state_op.cc) a rank does not before its host has the last update. So what hosts that are
// behind lack lies on every host that is ahead.
#ifndef TFHYBRID_CORE_UPDATE_ROLL_FORWARD_H_
#define TFHYBRID_CORE_UPDATE_ROLL_FORWARD_H_

#include <cstdint>
#include <vector>

#include "core/store/store.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The last update of each journal, for RollForward() on another host. REQUIRES: the store was
// recovered.
Result<std::vector<int64_t>> LastUpdates(const Store& store);

// Applies those of the updates that the store lacks; kDataLoss if it lacks others too. A leader
// that is killed meanwhile leaves what RecoverStore() finishes. REQUIRES: the store was recovered,
// and its own last updates are wanted by nobody.
Status RollForward(Span<const int64_t> updates, const Store& store,
                   const ParallelFor& parallel_for);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_ROLL_FORWARD_H_
