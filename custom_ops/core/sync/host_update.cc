#include "core/sync/host_update.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

namespace tfhybrid {
namespace {

constexpr auto kOpenPoll = std::chrono::milliseconds(1);

// The updates that this process has opened in its store.
struct OpenUpdates {
  std::mutex mutex;
  std::weak_ptr<Store> store;                                // guarded by mutex
  std::map<std::string, std::shared_ptr<HostUpdate>> named;  // guarded by mutex
};

// Never destroyed: an update may be under way while the process exits.
OpenUpdates& TheOpenUpdates() {
  static OpenUpdates* const updates = new OpenUpdates();
  return *updates;
}

}  // namespace

Result<std::shared_ptr<HostUpdate>> HostUpdate::Named(const std::shared_ptr<Store>& store,
                                                      const std::string& name,
                                                      const UpdateSettings& settings) {
  OpenUpdates& open = TheOpenUpdates();
  const std::lock_guard<std::mutex> guard(open.mutex);
  if (open.store.lock() != store) {
    open.named.clear();
    open.store = store;
  }
  std::shared_ptr<HostUpdate>& update = open.named[name];
  if (update == nullptr) {
    std::shared_ptr<HostUpdate> made(new HostUpdate(store, name, settings));
    made->directory_ = store->directory();
    made->token_ = store->token();
    if (settings.mailbox_per_rank || store->is_leader()) {
      const std::string which =
          settings.mailbox_per_rank ? std::to_string(store->local_rank()) : "all";
      TFHYBRID_ASSIGN_OR_RETURN(made->mailbox_,
                                Mailbox::Create(made->Path("." + which), made->token_));
    }
    update = std::move(made);
  }
  return update;
}

std::string HostUpdate::Path(const std::string& what) const {
  return directory_ + "/" + name_ + what;
}

Status HostUpdate::Post(Span<const int64_t> key_counts,
                        const std::function<void(const MessageBuilder&)>& fill) {
  Result<Span<int64_t>> words = mailbox_->Write(MessageWords(settings_.schema, key_counts));
  if (!words.ok()) {
    mailbox_->PostFailure(words.status().message());
    return words.status();
  }
  fill(MessageBuilder(settings_.schema, key_counts, words.value()));
  mailbox_->Post();
  return Status::Ok();
}

Status HostUpdate::PostAll(Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> room, mailbox_->Write(words.size()));
  std::memcpy(room.data(), words.data(), static_cast<size_t>(words.size()) * sizeof(int64_t));
  mailbox_->Post();
  return Status::Ok();
}

Status HostUpdate::Apply(const std::vector<GradientMessage>& messages,
                         Span<const float> learning_rates, const std::vector<TableWriter*>& tables,
                         const ParallelFor& parallel_for) {
  if (update_ == nullptr) TFHYBRID_RETURN_IF_ERROR(OpenJournal(tables));
  return update_->Run(messages, learning_rates, tables, parallel_for);
}

Result<std::vector<GradientMessage>> HostUpdate::Collect() {
  ++led_;
  const size_t wanted = settings_.mailbox_per_rank ? settings_.hosts.size() : 1;
  for (size_t rank = 0; rank < wanted; ++rank) {
    const int local_rank = settings_.mailbox_per_rank ? static_cast<int>(rank) : 0;
    if (rank == readers_.size()) {
      const std::string which = settings_.mailbox_per_rank ? std::to_string(rank) : "all";
      TFHYBRID_ASSIGN_OR_RETURN(MailboxReader reader, OpenMailbox(which, local_rank));
      readers_.push_back(std::move(reader));
    }
    TFHYBRID_RETURN_IF_ERROR(readers_[rank].Wait(led_, [&] {
      const std::shared_ptr<Store> store = store_.lock();
      return store == nullptr ? Status::Error(StatusCode::kFailedPrecondition, "The job has ended")
                              : store->CheckRank(local_rank);
    }));
  }
  return ReadMessages(settings_, &readers_);
}

Result<MailboxReader> HostUpdate::OpenMailbox(const std::string& which, int local_rank) const {
  while (true) {
    Result<MailboxReader> reader = MailboxReader::Open(Path("." + which), token_);
    if (reader.ok() || reader.status().code() != StatusCode::kNotFound) return reader;
    const std::shared_ptr<Store> store = store_.lock();
    if (store == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
    }
    TFHYBRID_RETURN_IF_ERROR(store->CheckRank(local_rank));
    std::this_thread::sleep_for(kOpenPoll);
  }
}

Status HostUpdate::OpenJournal(const std::vector<TableWriter*>& tables) {
  int64_t row_floats = 0;
  for (const TableWriter* table : tables) {
    // Of the optimizer with most state: it may be set later.
    row_floats = std::max(row_floats, table->dim() * (1 + StateSlots(OptimizerKind::kAdam)));
  }
  TFHYBRID_ASSIGN_OR_RETURN(UpdateJournal journal,
                            UpdateJournal::Create(Path(""), token_, settings_, row_floats));
  update_ = std::make_unique<TableUpdate>(std::move(journal));
  return Status::Ok();
}

Result<std::vector<GradientMessage>> ReadMessages(const UpdateSettings& settings,
                                                  std::vector<MailboxReader>* readers) {
  const auto ranks = static_cast<int64_t>(settings.hosts.size());
  if (!settings.mailbox_per_rank) {
    TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, readers->front().Words());
    return ParseMessages(settings.schema, words, ranks);
  }
  std::vector<GradientMessage> messages;
  for (MailboxReader& reader : *readers) {
    TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, reader.Words());
    TFHYBRID_ASSIGN_OR_RETURN(std::vector<GradientMessage> one,
                              ParseMessages(settings.schema, words, 1));
    messages.push_back(std::move(one.front()));
  }
  return messages;
}

}  // namespace tfhybrid
