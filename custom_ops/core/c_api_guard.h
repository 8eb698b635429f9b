// What every function of the C interface does: turns a Status and any exception into a code, and
// keeps the message for tfhybrid_last_error().
#ifndef TFHYBRID_CORE_C_API_GUARD_H_
#define TFHYBRID_CORE_C_API_GUARD_H_

#include <exception>
#include <new>
#include <string>

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

// Runs `body` (-> Status) with every exception, allocation failure above all, turned into a code.
template <typename Body>
int Guarded(const Body& body) {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return Report(Status::Error(StatusCode::kResourceExhausted, "Out of memory"));
  } catch (const std::exception& error) {
    return Report(Status::Error(StatusCode::kSystem, error.what()));
  }
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_C_API_GUARD_H_
