#include "core/engine/received_rows.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "core/placement/key_handle.h"
#include "core/util/counters.h"

namespace tfhybrid {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(200);

}  // namespace

void ReceivedRows::Add(int64_t owner, std::unique_ptr<Connection> connection) {
  const MutexLock guard(mutex_);
  if (closed_) return;
  std::unique_ptr<Owner>& its = owners_[owner];
  if (its != nullptr) {
    its->connection->Shut();
    replaced_.push_back(std::move(its));
    gone_.erase(owner);
  }
  its = std::make_unique<Owner>();
  its->connection = std::move(connection);
  its->thread = std::thread([this, owner, link = its->connection.get()] { Receive(owner, link); });
}

void ReceivedRows::Expect(int64_t ticket, std::map<std::string, uint64_t> versions,
                          uint64_t staleness) {
  const MutexLock guard(mutex_);
  if (staleness > 0) stale_ = true;
  expected_[ticket] = {std::move(versions), staleness};
}

void ReceivedRows::ExpectNone() {
  const MutexLock guard(mutex_);
  for (auto& [ticket, expected] : expected_) expected.versions.clear();
}

uint64_t ReceivedRows::StalenessOf(Span<const int64_t> handles) const {
  if (!stale_ || handles.empty()) return 0;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  int64_t ticket = -1;
  const MutexLock guard(mutex_);
  for (const int64_t handle : handles) {
    if (KeyHandle::Of(handle).ticket == ticket) continue;
    ticket = KeyHandle::Of(handle).ticket;
    const auto found = expected_.find(ticket);
    least = std::min(least, found == expected_.end() ? 0 : found->second.staleness);
  }
  return least;
}

void ReceivedRows::Forget(Span<const int64_t> tickets) {
  const MutexLock guard(mutex_);
  for (const int64_t ticket : tickets) {
    expected_.erase(ticket);
    const auto first = rows_.lower_bound({ticket, "", std::numeric_limits<int64_t>::min()});
    auto last = first;
    while (last != rows_.end() && std::get<0>(last->first) == ticket) ++last;
    rows_.erase(first, last);
  }
}

bool ReceivedRows::Expects(int64_t ticket, const std::string& table, uint64_t version) const {
  const MutexLock guard(mutex_);
  const auto batch = expected_.find(ticket);
  if (batch == expected_.end()) return false;
  const std::map<std::string, uint64_t>& versions = batch->second.versions;
  const auto found = versions.find(table);
  return found != versions.end() && found->second == version;
}

Result<ReceivedRows::Rows> ReceivedRows::Await(int64_t ticket, const std::string& table,
                                               int64_t owner,
                                               const std::function<Status()>& check_alive) const {
  const MutexLock guard(mutex_);
  for (;;) {
    const auto found = rows_.find({ticket, table, owner});
    if (found != rows_.end()) return found->second;
    // What it had sent before counts.
    if (const auto gone = gone_.find(owner); gone != gone_.end()) return gone->second;
    if (closed_) {
      return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
    }
    if (!changed_.WaitFor(mutex_, kPatience)) TFHYBRID_RETURN_IF_ERROR(check_alive());
  }
}

void ReceivedRows::Close() {
  std::vector<std::unique_ptr<Owner>> ending;
  {
    const MutexLock guard(mutex_);
    closed_ = true;
    ending.swap(replaced_);
    for (auto& [owner, its] : owners_) ending.push_back(std::move(its));
    owners_.clear();
  }
  changed_.NotifyAll();
  for (const auto& its : ending) {
    its->connection->Shut();
    its->thread.join();
  }
}

void ReceivedRows::Receive(int64_t owner, Connection* connection) {
  Status status;
  while (status.ok()) {
    Result<Frame> frame = connection->Receive();
    status = frame.ok() ? Take(owner, frame.Take()) : frame.status();
  }
  connection->Shut();
  {
    const MutexLock guard(mutex_);
    const auto now = owners_.find(owner);
    const bool replaced = now == owners_.end() || now->second->connection.get() != connection;
    if (!replaced) gone_.emplace(owner, status);
  }
  changed_.NotifyAll();
}

Status ReceivedRows::Take(int64_t owner, Frame frame) {
  if (frame.kind != FrameKind::kSent) {
    return Status::Error(StatusCode::kDataLoss,
                         "An owner sends rows of batches. Received: a frame ", "of kind ",
                         static_cast<uint32_t>(frame.kind));
  }
  const auto payload = std::make_shared<const WordBuffer>(std::move(frame.payload));
  TFHYBRID_ASSIGN_OR_RETURN(const SentBatch batch, ParseSent(payload->words()));
  AddTo(Counter::kFetchedBytes, payload->size * static_cast<int64_t>(sizeof(int64_t)));
  {
    const MutexLock guard(mutex_);
    if (expected_.count(batch.ticket) == 0) return Status::Ok();  // forgotten
    for (const SentTable& table : batch.tables) {
      AddTo(Counter::kFetchedRows, table.rows);
      rows_[{batch.ticket, table.name, owner}] = {payload, table, batch.failed};
    }
  }
  changed_.NotifyAll();
  return Status::Ok();
}

}  // namespace tfhybrid
