// What an engine does for tables whose rows other hosts own.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "core/engine/engine.h"
#include "core/engine/held_writers.h"
#include "core/placement/key_handle.h"
#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

constexpr auto kOpenPoll = std::chrono::milliseconds(5);

}  // namespace

Status Engine::OpenPlaced(TableConfig config, const Placement& placement, int timeout_ms) {
  const int64_t hosts = topology_.Hosts(), owners = topology_.Owners();
  if (placement.kind != PlacementKind::kReplicated) {
    if (hosts > Allocation::kSlots || placement.owner < 0 || placement.owner >= owners) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name, "' is owned by ",
                           "0 to ", owners - 1, " of its owners, on ", Allocation::kSlots,
                           " hosts at most. Received: owner ", placement.owner, ", ", hosts,
                           " hosts");
    }
    // Where there is one host, it has all rows.
    if (hosts > 1) {
      config.shard = {static_cast<uint32_t>(owners), placement.kind == PlacementKind::kWhole,
                      static_cast<uint32_t>(placement.owner)};
      const int64_t first = topology_.FirstOwner();
      const MutexLock guard(mutex_);
      allocations_[config.name] =
          placement.kind == PlacementKind::kByKey
              ? Allocation::Even(config.name, hosts, first)
              : Allocation::Whole(config.name, hosts, first + placement.owner);
    }
  }
  return store_->OpenNamed(config, timeout_ms).status();
}

std::shared_ptr<const Allocation> Engine::AllocationOf(const std::string& table) const {
  const MutexLock guard(mutex_);
  const auto found = allocations_.find(table);
  return found == allocations_.end() ? nullptr : found->second;
}

std::function<bool(int64_t key)> Engine::OwnsOf(const std::string& table) const {
  const std::shared_ptr<const Allocation> allocation = AllocationOf(table);
  if (allocation == nullptr) return nullptr;
  return
      [allocation, host = topology_.host](int64_t key) { return allocation->OwnerOf(key) == host; };
}

bool Engine::IsSharded(const OpenTables& tables) const {
  const MutexLock guard(mutex_);
  if (allocations_.empty()) return false;
  for (const auto& table : tables) {
    if (allocations_.count(table->reader->name()) > 0) return true;
  }
  return false;
}

Result<std::shared_ptr<const FetchedRows>> Engine::Fetch(const std::vector<FeatureRead>& features,
                                                         const ParallelFor& parallel_for) {
  meetings_.BeginWait();
  const FetchedRows::Sources sources = {&links_, passes_.get(), &received_,
                                        [this] { return store_->CheckLeader(); }};
  auto fetched = FetchedRows::Fetch(features, topology_.host, sources, parallel_for);
  meetings_.EndWait();
  if (fetched.ok()) NoteLookedUp(*fetched.value());
  return fetched;
}

void Engine::NoteLookedUp(const FetchedRows& fetched) {
  const std::vector<int64_t> tickets = fetched.Tickets();
  if (tickets.empty()) return;
  const MutexLock guard(mutex_);
  looked_up_.insert(tickets.begin(), tickets.end());
  for (RowRead& read : fetched.Reads()) reads_.push_back(std::move(read));
}

std::vector<int64_t> Engine::TakeLookedUp(int64_t max_count) {
  const MutexLock guard(mutex_);
  std::vector<int64_t> tickets;
  while (static_cast<int64_t>(tickets.size()) < max_count && !looked_up_.empty()) {
    tickets.push_back(*looked_up_.begin());
    looked_up_.erase(looked_up_.begin());
  }
  return tickets;
}

std::vector<RowRead> Engine::TakeReads(int64_t max_count) {
  const MutexLock guard(mutex_);
  std::vector<RowRead> taken;
  while (static_cast<int64_t>(taken.size()) < max_count && !reads_.empty()) {
    taken.push_back(std::move(reads_.front()));
    reads_.pop_front();
  }
  return taken;
}

Status Engine::CheckKeyHandles(const std::vector<KeyGradients>& batch) const {
  for (const KeyGradients& table : batch) {
    for (const int64_t key : table.keys) {
      const int64_t owner = KeyHandle::OwnerOf(key);
      if (KeyHandle::Is(key) && owner >= topology_.FirstOwner() && owner < topology_.Hosts())
        continue;
      return Status::Error(StatusCode::kInvalidArgument,
                           "An update is of batches that data nodes sent, since they send this "
                           "job's batches. Received: key ",
                           key);
    }
  }
  return Status::Ok();
}

void Engine::SendRows(int64_t rank, int socket, const std::string& peer) {
  sender_.Add(rank,
              std::make_unique<Connection>(socket, peer, [this] { return store_->CheckLeader(); }));
}

void Engine::ReceiveRows(int64_t owner, int socket, const std::string& peer) {
  received_.Add(
      owner, std::make_unique<Connection>(socket, peer, [this] { return store_->CheckLeader(); }));
}

Result<Engine::Scanned> Engine::Scan(int64_t host, const AskedRows& rows) {
  TFHYBRID_RETURN_IF_ERROR(CheckOtherHost(host));
  TFHYBRID_ASSIGN_OR_RETURN(const OwnerLinks::HeldLink held, links_.HoldReads(host));
  const std::vector<int64_t> asked = ScanWords(rows);
  TFHYBRID_RETURN_IF_ERROR(held.connection->Send(FrameKind::kScan, {asked}));
  TFHYBRID_ASSIGN_OR_RETURN(const Frame answer, held.connection->Receive());
  const Span<const int64_t> words = answer.payload.words();
  if (answer.kind == FrameKind::kFailure) return FailureFrom(words);
  const int64_t count = words.size() < 3 ? -1 : words[2];
  if (answer.kind != FrameKind::kRows || count < 0 || count > rows.count ||
      words.size() != 3 + count + WordsOfRows(count, rows.dim)) {
    return Status::Error(StatusCode::kDataLoss, held.connection->peer(), " was asked for ",
                         rows.count, " rows of table '", rows.table, "'. Received: ", words.size(),
                         " words");
  }
  const int64_t* const keys = words.data() + 3;
  const auto* const floats = reinterpret_cast<const float*>(keys + count);
  return Scanned{words[0], words[1], {keys, keys + count}, {floats, floats + count * rows.dim}};
}

void Engine::OnFetching(std::function<void()> then) {
  if (!fetching_.Submit(then)) then();  // it fails at once: the job has ended
}

Result<std::shared_ptr<OpenTable>> Engine::AwaitTable(const std::string& name) const {
  for (;;) {
    Result<std::shared_ptr<OpenTable>> table = Table(name);
    if (table.ok()) return table;
    TFHYBRID_RETURN_IF_ERROR(store_->CheckLeader());
    std::this_thread::sleep_for(kOpenPoll);
  }
}

Status Engine::CheckOtherHost(int64_t host) const {
  if (host >= 0 && host < topology_.Hosts() && host != topology_.host) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "A connection is with another of ",
                       topology_.Hosts(), " hosts than ", topology_.host, ". Received: ", host);
}

void Engine::Connect(int64_t host, LinkPurpose purpose, int socket, const std::string& peer) {
  links_.Add(host, purpose,
             std::make_unique<Connection>(socket, peer, [this] { return store_->CheckLeader(); }));
}

void Engine::Serve(int64_t host, LinkPurpose purpose, int socket, const std::string& peer) {
  service_.Serve(host, purpose, std::make_unique<Connection>(socket, peer, [this] {
                   return store_->CheckLeader();
                 }));
}

Result<ShardedStep::Agreed> Engine::AgreeWithOwners(const UpdateInUse& update,
                                                    const StepNumbers* numbers) {
  const UpdateStep which = {update->schema().Signature(), ++update->sharded->steps};
  ShardedStep step(update->settings(), which, &links_, &service_.inbox(),
                   [this] { return store_->CheckLeader(); });
  ShardedStep::Tables tables;
  tables.merge = [&](WordBuffer* words, std::vector<int64_t>* splits) -> Status {
    TFHYBRID_RETURN_IF_ERROR(OnApplying([&] {
      Merge(*update);
      *splits = update->exchange->Splits();
      int64_t total = 0;
      for (const int64_t share : *splits) total += share;
      *words = WordBuffer::OfSize(total);
      update->exchange->Fill({words->data.get(), total}, threads_);
      return Status::Ok();
    }));
    // Before the shares go out: owners send nobody what is not used any longer.
    return keeper_->ReleaseUsed();
  };
  tables.stage = [&](Span<const int64_t> words, HostExchange::Staged* staged) {
    return OnApplying([&] {
      const UpdateSettings& settings = update->settings();
      std::vector<int64_t> of_keys;
      Status found;
      if (topology_.IsNode()) {
        found = batch_keys_.ToKeys(settings.schema, words,
                                   static_cast<int64_t>(settings.hosts.size()), &of_keys);
      }
      if (!found.ok()) {
        *staged = {false, found.message()};
      } else {
        *staged = Stage(*update, of_keys.empty() ? words : Span<const int64_t>(of_keys));
      }
      return Status::Ok();
    });
  };
  const auto squares = [&] { return update->host_update->staged().squares(); };
  return numbers == nullptr ? step.Serve(tables, squares) : step.Run(*numbers, tables, squares);
}

void Engine::StepSharded(const UpdateInUse& update, const StepNumbers& numbers) {
  Finish(update, AgreeWithOwners(update, &numbers));
}

void Engine::ServeSteps(const UpdateInUse& update) {
  while (Finish(update, AgreeWithOwners(update, nullptr))) {
  }
}

bool Engine::Finish(const UpdateInUse& update, Result<ShardedStep::Agreed> agreed) {
  if (agreed.ok()) {
    Commit(update, std::move(agreed.value().numbers), std::move(agreed.value().complaint));
    return true;
  }
  Submit([update, why = agreed.status()] { HeldWriters(update->tables).Report(why); });
  // Where the update was applied, ranks may wait for rows of this owner.
  if (feeds_ != nullptr) feeds_->RefuseAll(agreed.status());
  return false;
}

}  // namespace tfhybrid
