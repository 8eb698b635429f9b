// What an engine does for passes: keys that ranks announce, whose rows come ahead of time.
#include <algorithm>
#include <utility>

#include "core/engine/engine.h"

namespace tfhybrid {

Status Engine::StartPasses() {
  passes_ = std::make_unique<RankPasses>(RankPasses::Rank{
      store_->directory(), store_->token(), store_->local_rank(), topology_.Hosts(),
      [this] { return store_->CheckLeader(); }, store_->description()});
  if (!store_->is_leader() || topology_.Hosts() == 1) return Status::Ok();
  feeds_ = std::make_unique<RowFeeds>(
      topology_.Hosts(), [this](int64_t host, FrameKind kind, Span<const int64_t> words) {
        if (host == topology_.host) {
          const Status taken =
              kind == FrameKind::kFresh ? keeper_->Receive(host, words) : FailureFrom(words);
          if (!taken.ok()) keeper_->Fail(taken);
          return;
        }
        const Result<Connection*> to = links_.Passes(host);
        // One that is gone hears nothing; who waits for it is told by the connection from it.
        if (to.ok()) (void)to.value()->Send(kind, {words});
      });
  for (int64_t host = 0; host < topology_.Hosts(); ++host) {
    announced_.push_back(std::make_unique<SerialThread>());
  }
  keeper_ = std::make_unique<PassKeeper>(PassKeeper::Host{
      store_->directory(), store_->token(), static_cast<int>(topology_.LocalRanks()),
      topology_.Hosts(), [this](const std::string& table) { return AllocationOf(table); },
      [this](int64_t owner, const AnnouncedKeys& keys) {
        return TellOwner(owner, FrameKind::kAnnounce, keys);
      },
      [this](int64_t owner, const AnnouncedKeys& keys) {
        return TellOwner(owner, FrameKind::kRelease, keys);
      }});
  return keeper_->Start();
}

Status Engine::TellOwner(int64_t owner, FrameKind kind, AnnouncedKeys keys) {
  const bool announces = kind == FrameKind::kAnnounce;
  // Another rank may have announced keys of a table that this leader has made and not opened yet.
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table,
                            announces ? AwaitTable(keys.table) : Table(keys.table));
  keys.dim = table->reader->dim();
  if (owner == topology_.host) {
    if (announces) {
      feeds_->Announce(owner, table, keys);
    } else {
      feeds_->Release(owner, keys);
    }
    return Status::Ok();
  }
  // What is released goes before the messages of the update that used it last, on the same
  // connection.
  TFHYBRID_ASSIGN_OR_RETURN(Connection* const to,
                            announces ? links_.Passes(owner) : links_.Updates(owner));
  const std::vector<int64_t> words = AnnounceWords(keys);
  return to->Send(kind, {words, keys.keys});
}

Status Engine::TakePassFrame(int64_t host, Frame frame) {
  if (keeper_ == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition, "The leader of a host keeps passes, ",
                         "nobody else");
  }
  const Span<const int64_t> words = frame.payload.words();
  switch (frame.kind) {
    case FrameKind::kFresh:
      return keeper_->Receive(host, words);
    case FrameKind::kFailure:
      keeper_->Fail(FailureFrom(words));
      return Status::Ok();
    default:
      break;
  }
  if (frame.kind == FrameKind::kRelease) {
    TFHYBRID_ASSIGN_OR_RETURN(const AnnouncedKeys released, ParseAnnounce(words));
    feeds_->Release(host, released);
    return Status::Ok();
  }
  // On a thread of its own: it may wait until this host opens the table, or for a disk, and behind
  // it lie rows that this host waits for.
  const auto payload = std::make_shared<const WordBuffer>(std::move(frame.payload));
  announced_[static_cast<size_t>(host)]->Submit([this, host, payload] {
    const Status taken = TakeAnnouncement(host, payload->words());
    if (!taken.ok()) feeds_->Refuse(host, taken);
  });
  return Status::Ok();
}

Status Engine::TakeAnnouncement(int64_t host, Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(const AnnouncedKeys keys, ParseAnnounce(words));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table, AwaitTable(keys.table));
  if (table->reader->dim() != keys.dim) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", keys.table,
                         "' has embeddings of ", table->reader->dim(), " floats on host ",
                         topology_.host, ". Received: ", keys.dim);
  }
  feeds_->Announce(host, table, keys);
  return Status::Ok();
}

void Engine::FeedPasses(const OpenedUpdate& update) {
  if (feeds_ == nullptr) return;
  for (size_t t = 0; t < update.tables.size(); ++t) {
    if (update.settings().allocations[t] == nullptr) continue;
    const auto changed = update.host_update->staged().KeysOf(t);
    int64_t rows = 0;
    for (const auto& keys : changed) rows += static_cast<int64_t>(keys.size());
    keeper_->CountWritten(rows);
    feeds_->Changed(update.tables[t], changed);
  }
}

Result<Engine::AskedPass> Engine::PlanPass(const std::vector<PassKeys>& keys) const {
  AskedPass asked;
  for (const PassKeys& of : keys) {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table, Table(of.table));
    if (device_tier_.Of(of.table) != nullptr) {
      asked.on_device.push_back(DeviceTier::Request(of.table, table->reader->dim(), of.keys));
    }
    const std::shared_ptr<const Allocation> allocation = AllocationOf(of.table);
    if (allocation == nullptr) continue;  // all rows are here
    const bool in_files = !table->reader->files().empty();
    asked.requested.push_back(RankPasses::Request(
        of.table, table->reader->dim(), of.keys, of.batch_of,
        [&](int64_t key) { return in_files || allocation->OwnerOf(key) != topology_.host; }));
  }
  asked.bytes = std::max(passes_->Bytes(asked.requested), DeviceTier::Bytes(asked.on_device));
  return asked;
}

Result<int64_t> Engine::AnnouncePass(AskedPass asked, int64_t batches, bool refuses) {
  TFHYBRID_ASSIGN_OR_RETURN(const int64_t number,
                            passes_->Announce(asked.requested, batches, refuses));
  device_tier_.Announce(number, std::move(asked.on_device));
  return number;
}

Status Engine::BeginBatch(int64_t pass, int64_t batch) {
  TFHYBRID_RETURN_IF_ERROR(passes_->Begin(pass, batch));
  device_tier_.Begin(pass);
  return Status::Ok();
}

Status Engine::EndPass(int64_t pass) {
  device_tier_.End(pass);
  return passes_->End(pass);
}

std::function<bool(int64_t key)> Engine::IsAtHand(const OpenTable& table) {
  const std::string name = table.reader->name();
  const std::shared_ptr<const Allocation> allocation = AllocationOf(name);
  if (allocation == nullptr) return [](int64_t) { return true; };
  const bool in_memory = table.reader->files().empty();
  return [=, host = topology_.host, views = passes_->Of(name)](int64_t key) {
    if (in_memory && allocation->OwnerOf(key) == host) return true;
    return std::any_of(views.begin(), views.end(),
                       [&](const RankPasses::PassView& view) { return view.Find(key) >= 0; });
  };
}

void Engine::EndPasses() {
  device_tier_.EndAll();
  passes_->EndAll();
  if (keeper_ != nullptr) keeper_->LetAllGo();
}

int64_t Engine::CountOfPasses(PassCounter counter) const {
  return keeper_ == nullptr ? 0 : keeper_->CountOf(counter);
}

}  // namespace tfhybrid
