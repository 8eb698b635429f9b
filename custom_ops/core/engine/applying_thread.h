// ApplyingThread: the thread on which the leader of a host collects and applies updates, in the
// order in which it posted its own.
//
// Once an update's journal has begun there is no way back: if memory runs out then, the process
// ends, and whoever takes the store over finishes the update.
//
// Thread-safe, except for Join().
#ifndef TFHYBRID_CORE_ENGINE_APPLYING_THREAD_H_
#define TFHYBRID_CORE_ENGINE_APPLYING_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/host_passes.h"
#include "core/engine/row_sender.h"
#include "core/engine/serial_thread.h"
#include "core/exchange/host_exchange.h"

namespace tfhybrid {

// What the leaders of hosts with sharded tables need for an update: a thread that waits for the
// others, and the number of steps done.
struct ShardedUpdate {
  SerialThread thread;
  std::atomic<int64_t> steps = 0;  // written by the thread
};

// An update that an engine has open. Held by shared_ptr, as long as it runs.
struct OpenedUpdate {
  std::string name;
  OpenTables tables;
  std::shared_ptr<HostUpdate> host_update;
  std::unique_ptr<HostExchange> exchange;  // null where leaders do not exchange, or in another rank
  std::unique_ptr<ShardedUpdate> sharded;  // null where no table is, or in another rank

  const UpdateSettings& settings() const { return host_update->settings(); }
  const MessageSchema& schema() const { return settings().schema; }
  // Ok for the leader if hosts exchange the parts of an update that the caller sends.
  Status CheckExchanges() const {
    if (exchange != nullptr && sharded == nullptr) return Status::Ok();
    return Status::Error(StatusCode::kFailedPrecondition,
                         exchange == nullptr
                             ? "The leader of a host exchanges gradients with others, nobody else"
                             : "Gradients of sharded tables travel by the row service alone");
  }
};
using UpdateInUse = std::shared_ptr<const OpenedUpdate>;

class ApplyingThread {
 public:
  // Threads of `parallel_for` help with an update, `passes` and `sender` follow one. All outlive
  // this object.
  ApplyingThread(const ParallelFor& parallel_for, HostPasses* passes, RowSender* sender)
      : parallel_for_(parallel_for), passes_(passes), sender_(sender) {}

  const ParallelFor& parallel_for() const { return parallel_for_; }
  // Runs `work`, after earlier work; an error after Join().
  Status Submit(std::function<void()> work);
  // Likewise, but waits for it.
  Status Run(const std::function<Status()>& work);
  // Applies the messages that `collect` returns. The result reaches all who wait for the tables'
  // next version.
  void Apply(const UpdateInUse& update, StepNumbers numbers,
             std::function<Result<std::vector<GradientMessage>>()> collect);
  // Applies the staged update, or tells all who wait why it failed.
  void Commit(const UpdateInUse& update, StepNumbers numbers, std::string complaint);
  // Tells all who wait for the update that it will not come.
  void Fail(const UpdateInUse& update, const Status& why);

  // On this thread: HostExchange's, for the tables of the update.
  void Merge(const OpenedUpdate& update) const;
  HostExchange::Staged Stage(const OpenedUpdate& update, Span<const int64_t> words) const;
  HostExchange::Staged Stage(const OpenedUpdate& update,
                             const std::vector<Span<const int64_t>>& messages,
                             const BatchKeys* held) const;

  // Runs all submitted work, and ends the thread.
  void Join() { thread_.Join(); }

 private:
  const ParallelFor& parallel_for_;
  HostPasses* const passes_;
  RowSender* const sender_;
  SerialThread thread_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_APPLYING_THREAD_H_
