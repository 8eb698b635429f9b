// Recovery: what a new leader does with the store of a dead job before any row is read.
//
//     RecoverStore    finishes every update that was begun
//     LastUpdates     on a host that is ahead of others (roll_forward.h)
//     RollForward     on the hosts that are behind
//     ForgetUpdates   when all hosts agree
#ifndef TFHYBRID_CORE_UPDATE_RECOVERY_H_
#define TFHYBRID_CORE_UPDATE_RECOVERY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/store/store.h"
#include "core/update/host_update.h"
#include "core/util/parallel.h"
#include "core/util/status.h"

namespace tfhybrid {

// Recovers the store of `config.job`, all of whose processes are dead: attaches every table, and
// finishes every update that was begun, so that all rows of a table are of one version. The store
// is this process's from then on, as after Store::Create. kNotFound where there is none,
// kAlreadyExists while a process of it lives, kDataLoss where it cannot be trusted; the store is
// removed then, as any that its last process leaves.
Result<std::unique_ptr<Store>> RecoverStore(const StoreConfig& config,
                                            const ParallelFor& parallel_for);

// Paths of the journals in a store's directory, without the suffix.
Result<std::vector<std::string>> Journals(const std::string& directory);

// The messages that an update was made of; `readers` has them open.
Result<std::vector<GradientMessage>> MessagesOf(const std::string& path, uint64_t token,
                                                const UpdateSettings& settings,
                                                std::vector<MailboxReader>* readers);

// Removes the mailboxes and journals of the dead: a message of theirs must never be taken for a new
// one. Before the first update of the store's new life.
Status ForgetUpdates(const Store& store);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_RECOVERY_H_
