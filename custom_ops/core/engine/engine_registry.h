// The engines of this process by number, which is how C, Python and TensorFlow's graphs name them.
//
// A number is reserved before an engine is opened in it, because graphs may be traced before it is
// known which store their tables lie in. It is never given twice: whoever names the engine of a job
// that has ended gets an error, not another job's tables.
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

// For an engine of a job of that topology; an error where this process has no place in it.
Result<int64_t> ReserveEngine(Topology topology);
// Opens an engine in a number that holds none.
Status OpenEngine(int64_t number,
                  const std::function<Result<std::shared_ptr<Engine>>(const Topology&)>& open);
// kFailedPrecondition where none is open, or where it is that of a forked child's parent.
Result<std::shared_ptr<Engine>> EngineOf(int64_t number);
// Closes the engine, if one is open; another one may then be opened in the number. In a forked
// child the engine is the parent's, whose it stays.
void CloseEngine(int64_t number);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ENGINE_REGISTRY_H_
