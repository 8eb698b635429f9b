// Status and Result: how every fallible function of the core reports what went wrong.
//
// No exception is thrown by the core on purpose (allocation failure aside), and none crosses the C
// interface or the TensorFlow kernels. A Status is a value: cheap when ok, and safe to move between
// threads.
#ifndef TFHYBRID_CORE_UTIL_STATUS_H_
#define TFHYBRID_CORE_UTIL_STATUS_H_

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace tfhybrid {

// The numbers are part of the C interface (c_api.h); Python maps them to exceptions of
// tfhybrid.errors.
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,     // the caller passed something that can never work
  kNotFound = 2,            // no such file, table or process
  kAlreadyExists = 3,       // a name is taken by a living owner
  kFailedPrecondition = 4,  // right call, wrong moment or wrong process
  kResourceExhausted = 5,   // shared memory, disk or address space ran out
  kDataLoss = 6,            // a file or segment is damaged
  kPeerDied = 7,            // the process that we waited for is gone
  kDeadlineExceeded = 8,    // the process that we waited for lives but does not answer
  kSystem = 9,              // an operating system call failed; the message holds errno in words
};

class [[nodiscard]] Status {
 public:
  Status() = default;

  static Status Ok() { return Status(); }

  // Builds a status whose message is the concatenation of `parts`, streamed.
  template <typename... Parts>
  static Status Error(StatusCode code, const Parts&... parts) {
    // The constructor without arguments needs GLIBCXX 3.4.26 (docs/versions.md).
    std::ostringstream message(std::ios_base::out);
    (message << ... << parts);
    return Status(code, message.str());
  }

  bool ok() const { return state_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : state_->code; }
  const std::string& message() const {
    static const std::string* const empty = new std::string();
    return ok() ? *empty : state_->message;
  }

 private:
  struct State {
    StatusCode code;
    std::string message;
  };
  Status(StatusCode code, std::string message)
      : state_(std::make_shared<const State>(State{code, std::move(message)})) {}

  std::shared_ptr<const State> state_;  // null when ok, so that success costs one pointer
};

// Either a value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T Take() { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define TFHYBRID_RETURN_IF_ERROR(expression)          \
  do {                                                \
    ::tfhybrid::Status status_of_call = (expression); \
    if (!status_of_call.ok()) return status_of_call;  \
  } while (false)

#define TFHYBRID_CONCAT_INNER(a, b) a##b
#define TFHYBRID_CONCAT(a, b) TFHYBRID_CONCAT_INNER(a, b)

// Declares or assigns `lhs` from a Result, or returns its Status.
#define TFHYBRID_ASSIGN_OR_RETURN(lhs, expression)                \
  auto TFHYBRID_CONCAT(result_of_call_, __LINE__) = (expression); \
  if (!TFHYBRID_CONCAT(result_of_call_, __LINE__).ok())           \
    return TFHYBRID_CONCAT(result_of_call_, __LINE__).status();   \
  lhs = TFHYBRID_CONCAT(result_of_call_, __LINE__).Take()

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_STATUS_H_
