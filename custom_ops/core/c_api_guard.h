// Common parts of the functions of the C interface: a Status or an exception becomes a code, its
// message is kept for tfhybrid_last_error(), and results are copied into the caller's buffer.
#ifndef TFHYBRID_CORE_C_API_GUARD_H_
#define TFHYBRID_CORE_C_API_GUARD_H_

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "core/engine/engine_registry.h"
#include "core/util/status.h"

namespace tfhybrid {

inline std::string& LastError() {
  thread_local std::string message;
  return message;
}

inline int Report(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return static_cast<int>(status.code());
}

// Runs `body` (-> Status, or nothing where it cannot fail).
template <typename Body, typename... Args>
Status StatusOf(const Body& body, const Args&... args) {
  if constexpr (std::is_void_v<decltype(body(args...))>) {
    body(args...);
    return Status::Ok();
  } else {
    return body(args...);
  }
}

// Runs `body` likewise and turns every exception, above all an allocation failure, into a code.
template <typename Body>
int Guarded(const Body& body) {
  try {
    return Report(StatusOf(body));
  } catch (const std::bad_alloc&) {
    return Report(Status::Error(StatusCode::kResourceExhausted, "Out of memory"));
  } catch (const std::exception& error) {
    return Report(Status::Error(StatusCode::kSystem, error.what()));
  }
}

// Like Guarded, for a body that needs the engine with that number, which is held during the call.
template <typename Body>
int WithEngine(int64_t engine, const Body& body) {
  return Guarded([&]() -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> its, EngineOf(engine));
    return StatusOf(body, its.get());
  });
}

// Writes what a call returned, if it did not fail.
template <typename T, typename To>
Status WriteTo(To* to, Result<T> result) {
  if (result.ok()) *to = result.Take();
  return result.status();
}

// As much of `all` as there is room for, and how much there is.
template <typename All, typename T>
void CopyOut(const All& all, T* to, int64_t room, int64_t* size) {
  *size = static_cast<int64_t>(all.size());
  std::copy_n(all.begin(), std::min(*size, room), to);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_C_API_GUARD_H_
