// Rolling forward: hosts that died one update apart come together at the later one.
//
// A leader leaves the messages of its last update in its mailbox until it posts the next ones. It
// does so only after the ranks of every host have taken part in the next update, and if state is
// kept (tf/keep_state_op.cc), a rank does that only after its host has the last update. So every
// host that is ahead still has the messages that the others lack.
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

// Applies those of the updates that the store lacks; kDataLoss if it lacks others too. If the
// leader is killed meanwhile, RecoverStore() finishes the update. REQUIRES: the store was
// recovered, and no other host needs its own last updates.
Status RollForward(Span<const int64_t> updates, const Store& store,
                   const ParallelFor& parallel_for);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_ROLL_FORWARD_H_
