// The engine of the job that this process runs, for those who name none.
#ifndef TFHYBRID_CORE_ENGINE_CURRENT_ENGINE_H_
#define TFHYBRID_CORE_ENGINE_CURRENT_ENGINE_H_

#include <memory>

#include "core/engine/engine.h"
#include "core/util/status.h"

namespace tfhybrid {

// Thread-safe. kFailedPrecondition where there is none, or where it is that of a forked child's
// parent.
Result<std::shared_ptr<Engine>> CurrentEngine();
// Closes the one before. In a forked child that is the parent's, whose it stays.
void SetCurrentEngine(std::shared_ptr<Engine> engine);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_CURRENT_ENGINE_H_
