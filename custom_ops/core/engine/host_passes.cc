#include "core/engine/host_passes.h"

#include <utility>

namespace tfhybrid {
namespace {

constexpr char kLetGo[] = "the leader of its host to let go of passes";

}  // namespace

HostPasses::HostPasses(const PlacedTables* tables, OwnerLinks* links, Meetings* meetings)
    : tables_(tables),
      links_(links),
      meetings_(meetings),
      rank_({tables->store().directory(), tables->store().token(), tables->store().local_rank(),
             tables->topology().Hosts(), tables->check_alive(), tables->store().description()}) {}

Status HostPasses::Start() {
  const Store& store = tables_->store();
  const Topology& topology = tables_->topology();
  if (!store.is_leader() || topology.Hosts() == 1) return Status::Ok();
  std::vector<int64_t> ranks(static_cast<size_t>(topology.Hosts()));
  for (const int64_t host : topology.hosts) ++ranks[static_cast<size_t>(host)];
  feeds_ = std::make_unique<RowFeeds>(ranks, [this](auto... frame) { Deliver(frame...); });
  announced_ = std::vector<SerialThread>(static_cast<size_t>(topology.Hosts()));
  const auto telling = [this](FrameKind kind) {
    return [this, kind](int64_t owner, const AnnouncedKeys& keys) {
      return TellOwner(owner, kind, keys);
    };
  };
  keeper_ = std::make_unique<PassKeeper>(PassKeeper::Host{
      store.directory(), store.token(), static_cast<int>(topology.LocalRanks()), topology.Hosts(),
      [this](const std::string& table) { return tables_->AllocationOf(table); },
      telling(FrameKind::kAnnounce), telling(FrameKind::kRelease)});
  return keeper_->Start();
}

void HostPasses::Close() {
  if (keeper_ != nullptr) keeper_->Close();
  for (SerialThread& thread : announced_) thread.Join();
  if (feeds_ != nullptr) feeds_->Close();
}

void HostPasses::Deliver(int64_t host, FrameKind kind, Span<const int64_t> words) {
  if (host == tables_->topology().host) {
    const Status taken =
        kind == FrameKind::kFresh ? keeper_->Receive(host, words) : FailureFrom(words);
    if (!taken.ok()) keeper_->Fail(taken);
    return;
  }
  const Result<Connection*> to = links_->Passes(host);
  // One that is gone hears nothing; who waits for it is told by the connection from it.
  if (to.ok()) (void)to.value()->Send(kind, {words});
}

Status HostPasses::TellOwner(int64_t owner, FrameKind kind, AnnouncedKeys keys) {
  const bool announces = kind == FrameKind::kAnnounce;
  // Another rank may have announced keys of a table that this leader has made and not opened yet.
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table,
                            announces ? tables_->Await(keys.table) : tables_->Get(keys.table));
  keys.dim = table->reader->dim();
  if (owner == tables_->topology().host) {
    if (!announces) {
      feeds_->Release(owner, keys);
      return Status::Ok();
    }
    // On a thread of its own, too: the other owners are told next, and need not wait for this disk.
    announced_[static_cast<size_t>(owner)].Submit(
        [this, owner, table, keys,
         copy = std::vector<int64_t>(keys.keys.begin(), keys.keys.end())]() mutable {
          keys.keys = copy;
          feeds_->Announce(owner, table, keys);
        });
    return Status::Ok();
  }
  // What is released goes before the messages of the update that used it last, on the same
  // connection.
  TFHYBRID_ASSIGN_OR_RETURN(Connection* const to,
                            announces ? links_->Passes(owner) : links_->Updates(owner));
  const std::vector<int64_t> words = AnnounceWords(keys);
  return to->Send(kind, {words, keys.keys});
}

Status HostPasses::Take(int64_t host, Frame frame) {
  if (keeper_ == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition, "The leader of a host keeps passes, ",
                         "nobody else");
  }
  const Span<const int64_t> words = frame.payload.words();
  if (frame.kind == FrameKind::kFresh) return keeper_->Receive(host, words);
  if (frame.kind == FrameKind::kFailure) {
    keeper_->Fail(FailureFrom(words));
    return Status::Ok();
  }
  if (frame.kind == FrameKind::kRelease) {
    TFHYBRID_ASSIGN_OR_RETURN(const AnnouncedKeys released, ParseAnnounce(words));
    feeds_->Release(host, released);
    return Status::Ok();
  }
  // On a thread of its own: it may wait until this host opens the table, or for a disk, and behind
  // it lie rows that this host waits for.
  const auto payload = std::make_shared<const WordBuffer>(std::move(frame.payload));
  announced_[static_cast<size_t>(host)].Submit([this, host, payload] {
    const Status taken = TakeAnnouncement(host, payload->words());
    if (!taken.ok()) feeds_->Refuse(host, taken);
  });
  return Status::Ok();
}

void HostPasses::Fail(const Status& why) {
  if (keeper_ != nullptr) keeper_->Fail(why);
}

void HostPasses::RefuseAll(const Status& why) {
  if (feeds_ != nullptr) feeds_->RefuseAll(why);
}

Status HostPasses::TakeAnnouncement(int64_t host, Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(const AnnouncedKeys keys, ParseAnnounce(words));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table, tables_->Await(keys.table));
  if (table->reader->dim() != keys.dim) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", keys.table,
                         "' has embeddings of ", table->reader->dim(), " floats on host ",
                         tables_->topology().host, ". Received: ", keys.dim);
  }
  feeds_->Announce(host, table, keys);
  return Status::Ok();
}

void HostPasses::Follow(const OpenTables& tables, const HostUpdate& update) {
  if (feeds_ == nullptr) return;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (update.settings().allocations[t] == nullptr) continue;
    const auto changed = update.staged().KeysOf(t);
    int64_t rows = 0;
    for (const auto& keys : changed) rows += static_cast<int64_t>(keys.size());
    keeper_->CountWritten(rows);
    feeds_->Changed(tables[t], changed);
  }
}

Result<HostPasses::AskedPass> HostPasses::Plan(const std::vector<PassKeys>& keys) const {
  AskedPass asked;
  for (const PassKeys& of : keys) {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table, tables_->Get(of.table));
    const std::shared_ptr<const Allocation> allocation = tables_->AllocationOf(of.table);
    if (allocation == nullptr) continue;  // all rows are here
    const bool in_files = !table->reader->files().empty();
    asked.requested.push_back(
        RankPasses::Request(of.table, table->reader->dim(), of.keys, of.batch_of, [&](int64_t key) {
          return in_files || allocation->OwnerOf(key) != tables_->topology().host;
        }));
  }
  asked.bytes = rank_.Bytes(asked.requested);
  return asked;
}

Result<int64_t> HostPasses::Announce(const AskedPass& asked, int64_t batches, bool refuses) {
  return rank_.Announce(asked.requested, batches, refuses);
}

Status HostPasses::BeginBatch(int64_t pass, int64_t batch) { return rank_.Begin(pass, batch); }

Status HostPasses::End(int64_t pass) {
  const Meetings::Wait wait(meetings_, kLetGo);
  return rank_.End(pass);
}

void HostPasses::EndAll() {
  const Meetings::Wait wait(meetings_, kLetGo);
  rank_.EndAll();
  if (keeper_ != nullptr) keeper_->LetAllGo();
}

int64_t HostPasses::CountOf(PassCounter counter) const {
  return keeper_ == nullptr ? 0 : keeper_->CountOf(counter);
}

}  // namespace tfhybrid
