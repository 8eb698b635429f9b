// UpdateInbox: holds the frames of updates from the other hosts' leaders until they are needed.
//
//     UPDATE  update, id, numbers of the step, and the message for the receiver
//             (core/update/gradient_message.h)
//     STAGED  update, id, why the owner cannot apply it, and squares
//     COMMIT  update, id, the combined answer of all owners
//
// An update is identified by the hash of its name, and a step by its id: 1, 2, ..., equal on all
// hosts. Thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_UPDATE_INBOX_H_
#define TFHYBRID_CORE_EXCHANGE_UPDATE_INBOX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "core/exchange/connection.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

// Which step of which update; the first words of each frame of an update.
struct UpdateStep {
  int64_t update;
  int64_t id;
};

class UpdateInbox {
 public:
  // Adds a frame that `host` has sent. kInvalidArgument if it has sent more frames than the
  // protocol allows.
  Status Put(int64_t host, Frame frame);
  // Notes another connection to a host, which is no longer gone if it was. Rows may have moved from
  // one node to another, whose connection may come before the end of the old one.
  void HostIsThere(int64_t host);
  // Notes the end of a connection, because of `why`; after its last one a host sends no more.
  void HostIsGone(int64_t host, const Status& why);
  // Waits until some host has sent a frame of that kind for a step, or `host` is gone. Between
  // slices of waiting, what `check_alive` returns ends the wait.
  Status AwaitAny(FrameKind kind, const UpdateStep& step, int64_t host,
                  const std::function<Status()>& check_alive);
  // Waits for a frame and returns its payload behind UpdateStep. `check_alive` as of
  // AwaitAny().
  struct Taken {
    WordBuffer payload;
    Span<const int64_t> words;  // of it
  };
  Result<Taken> Take(FrameKind kind, const UpdateStep& step, int64_t host,
                     const std::function<Status()>& check_alive);

 private:
  // Kind, update, id, host.
  using FrameId = std::tuple<FrameKind, int64_t, int64_t, int64_t>;

  Mutex mutex_;
  Condition changed_;
  std::map<FrameId, WordBuffer> frames_ TFHYBRID_GUARDED_BY(mutex_);
  std::map<int64_t, int64_t> waiting_ TFHYBRID_GUARDED_BY(mutex_);  // frames by host
  std::map<int64_t, Status> gone_ TFHYBRID_GUARDED_BY(mutex_);      // hosts
  std::map<int64_t, int64_t> there_ TFHYBRID_GUARDED_BY(mutex_);    // connections by host
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_UPDATE_INBOX_H_
