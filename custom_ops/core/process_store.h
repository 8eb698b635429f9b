// The one store that a process has open, shared by the C interface and the TensorFlow kernels.
#ifndef TFHYBRID_CORE_PROCESS_STORE_H_
#define TFHYBRID_CORE_PROCESS_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/store/store.h"
#include "core/util/status.h"

namespace tfhybrid {

// Thread-safe. A table keeps its store's mappings alive, not the store itself.
std::shared_ptr<Store> ProcessStore();
void SetProcessStore(std::shared_ptr<Store> store);

// The open table of that name, or an error that says what the user forgot.
Result<std::shared_ptr<OpenTable>> OpenTableNamed(const std::string& name);

// Waits until the leader has applied `version` updates to the table; an error once it cannot.
Status WaitForVersion(const OpenTable& table, uint64_t version);

// The same, but content with a failed update too: the table is as it was before, and may be read,
// saved or loaded.
Status WaitUntilDone(const OpenTable& table, uint64_t version);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PROCESS_STORE_H_
