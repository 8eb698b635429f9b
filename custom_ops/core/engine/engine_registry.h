// The engines of this process by number. C, Python and TensorFlow's graphs refer to engines by
// number.
//
// A number is reserved before an engine is opened in it, because graphs may be traced before the
// store of their tables is known. Numbers are never reused: a reference to the engine of an ended
// job gives an error, not another job's tables.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_ENGINE_REGISTRY_H_
#define TFHYBRID_CORE_ENGINE_ENGINE_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "core/engine/engine.h"
#include "core/placement/topology.h"
#include "core/util/status.h"

namespace tfhybrid {

// For an engine of a job of that topology; an error if this process is not part of it.
Result<int64_t> ReserveEngine(Topology topology);
// Opens an engine in a number that holds none.
Status OpenEngine(int64_t number,
                  const std::function<Result<std::shared_ptr<Engine>>(const Topology&)>& open);
// kFailedPrecondition if none is open, or if it belongs to the parent of this forked child.
Result<std::shared_ptr<Engine>> EngineOf(int64_t number);
// Closes the engine, if one is open; another one may then be opened in the number. In a forked
// child the engine stays with the parent.
void CloseEngine(int64_t number);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ENGINE_REGISTRY_H_
