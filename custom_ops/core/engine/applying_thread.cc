#include "core/engine/applying_thread.h"

#include <exception>
#include <future>
#include <new>
#include <utility>

#include "core/engine/held_writers.h"

namespace tfhybrid {
namespace {

// What `body` (-> Status or a Result) returns, or that there was no memory for it.
template <typename Body>
auto WithinMemory(const OpenedUpdate& update, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    if (update.host_update->has_begun()) std::terminate();
    return Status::Error(StatusCode::kResourceExhausted, "Out of memory. No table was updated");
  }
}

}  // namespace

Status ApplyingThread::Submit(std::function<void()> work) {
  if (thread_.Submit(std::move(work))) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
}

Status ApplyingThread::Run(const std::function<Status()>& work) {
  std::packaged_task<Status()> run(work);
  std::future<Status> done = run.get_future();
  TFHYBRID_RETURN_IF_ERROR(Submit([&run] { run(); }));
  return done.get();
}

void ApplyingThread::Apply(const UpdateInUse& update, StepNumbers numbers,
                           std::function<Result<std::vector<GradientMessage>>()> collect) {
  // The update holds its tables, so that their mappings outlive it.
  thread_.Submit([this, update, numbers = std::move(numbers), collect = std::move(collect)] {
    const Result<std::vector<GradientMessage>> messages = WithinMemory(*update, collect);
    const HeldWriters writers(update->tables);
    writers.Report(WithinMemory(*update, [&] {
      return messages.ok() ? update->host_update->Apply(messages.value(), numbers, writers.all(),
                                                        parallel_for_)
                           : messages.status();
    }));
  });
}

void ApplyingThread::Merge(const OpenedUpdate& update) const {
  // Not held while other processes are waited for; they are only asked for their room.
  std::vector<TableWriter*> writers;
  for (const auto& table : update.tables) writers.push_back(table->writer.get());
  update.exchange->Merge(writers, parallel_for_);
}

HostExchange::Staged ApplyingThread::Stage(const OpenedUpdate& update,
                                           Span<const int64_t> words) const {
  const HeldWriters writers(update.tables);
  return update.exchange->Stage(words, writers.all(), parallel_for_);
}

HostExchange::Staged ApplyingThread::Stage(const OpenedUpdate& update,
                                           const std::vector<Span<const int64_t>>& messages,
                                           const BatchKeys* held) const {
  const HeldWriters writers(update.tables);
  return update.exchange->Stage(ParseEach(update.schema(), messages), held, writers.all(),
                                parallel_for_);
}

void ApplyingThread::Commit(const UpdateInUse& update, StepNumbers numbers, std::string complaint) {
  thread_.Submit([this, update, numbers = std::move(numbers), complaint = std::move(complaint)] {
    const HeldWriters writers(update->tables);
    writers.Report(WithinMemory(*update, [&] {
      if (!complaint.empty()) return Status::Error(StatusCode::kFailedPrecondition, complaint);
      TFHYBRID_RETURN_IF_ERROR(update->host_update->Commit(numbers, writers.all(), parallel_for_));
      passes_->Follow(update->tables, *update->host_update);
      return Status::Ok();
    }));
    sender_->Changed();
  });
}

void ApplyingThread::Fail(const UpdateInUse& update, const Status& why) {
  thread_.Submit([update, why] { HeldWriters(update->tables).Report(why); });
}

}  // namespace tfhybrid
