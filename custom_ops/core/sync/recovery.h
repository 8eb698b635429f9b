// Recovery: what a new leader does with the store of a dead job before anybody looks at a row.
#ifndef TFHYBRID_CORE_SYNC_RECOVERY_H_
#define TFHYBRID_CORE_SYNC_RECOVERY_H_

#include <memory>

#include "core/store/store.h"
#include "core/util/parallel.h"
#include "core/util/status.h"

namespace tfhybrid {

// Takes over the store of `config.job`, all of whose processes are dead: attaches every table, and
// finishes every update that was begun, so that all rows of a table are of one version. Mailboxes
// and journals are gone afterwards. The store is this process's from then on, as after
// Store::Create. kNotFound where there is none, kAlreadyExists while a process of it lives,
// kDataLoss where it cannot be trusted; the store is removed then, as any that its last process
// leaves.
Result<std::unique_ptr<Store>> RecoverStore(const StoreConfig& config,
                                            const ParallelFor& parallel_for);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SYNC_RECOVERY_H_
