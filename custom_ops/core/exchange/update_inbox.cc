#include "core/exchange/update_inbox.h"

#include <chrono>
#include <utility>

namespace tfhybrid {
namespace {

constexpr int64_t kStepWords = sizeof(UpdateStep) / sizeof(int64_t);
constexpr auto kPatience = std::chrono::seconds(1);
// A host is at most one step ahead of another in each update, with three frames a step.
constexpr int64_t kMaxWaiting = 1024;

}  // namespace

Status UpdateInbox::Put(int64_t host, Frame frame) {
  if (frame.payload.size < kStepWords) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "A frame of an update names it. Received: ", frame.payload.size, " words");
  }
  const FrameId id = {frame.kind, frame.payload.data[0], frame.payload.data[1], host};
  {
    const MutexLock guard(mutex_);
    if (waiting_[host] >= kMaxWaiting) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "A host that does not wait for others: ", kMaxWaiting,
                           " frames of it were not asked for");
    }
    if (!frames_.emplace(id, std::move(frame.payload)).second) {
      return Status::Error(StatusCode::kInvalidArgument, "A frame of an update came twice");
    }
    ++waiting_[host];
  }
  changed_.NotifyAll();
  return Status::Ok();
}

void UpdateInbox::HostIsThere(int64_t host) {
  const MutexLock guard(mutex_);
  ++there_[host];
  gone_.erase(host);
}

void UpdateInbox::HostIsGone(int64_t host, const Status& why) {
  {
    const MutexLock guard(mutex_);
    if (--there_[host] > 0) return;
    gone_.emplace(host, why);
  }
  changed_.NotifyAll();
}

Status UpdateInbox::AwaitAny(FrameKind kind, const UpdateStep& step, int64_t host,
                             const std::function<Status()>& check_alive) {
  const MutexLock guard(mutex_);
  for (;;) {
    const auto next = frames_.lower_bound({kind, step.update, step.id, 0});
    if (next != frames_.end()) {
      const auto& [of_kind, update, id, sender] = next->first;
      if (of_kind == kind && update == step.update && id == step.id) return Status::Ok();
    }
    if (gone_.count(host) != 0) return Status::Ok();
    if (!changed_.WaitFor(mutex_, kPatience)) TFHYBRID_RETURN_IF_ERROR(check_alive());
  }
}

Result<UpdateInbox::Taken> UpdateInbox::Take(FrameKind kind, const UpdateStep& step, int64_t host,
                                             const std::function<Status()>& check_alive) {
  const MutexLock guard(mutex_);
  for (;;) {
    const auto found = frames_.find({kind, step.update, step.id, host});
    if (found != frames_.end()) {
      Taken taken = {std::move(found->second), {}};
      taken.words = taken.payload.words().subspan(kStepWords, taken.payload.size - kStepWords);
      frames_.erase(found);
      --waiting_[host];
      return taken;
    }
    // What it had sent before counts.
    if (const auto gone = gone_.find(host); gone != gone_.end()) return gone->second;
    if (!changed_.WaitFor(mutex_, kPatience)) TFHYBRID_RETURN_IF_ERROR(check_alive());
  }
}

}  // namespace tfhybrid
