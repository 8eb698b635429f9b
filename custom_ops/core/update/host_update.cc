#include "core/update/host_update.h"

#include <algorithm>

#include "core/util/counters.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
namespace {

// One message of each mailbox.
Result<std::vector<GradientMessage>> ReadEach(const MessageSchema& schema,
                                              std::vector<MailboxReader>* readers) {
  std::vector<Span<const int64_t>> messages;
  for (MailboxReader& reader : *readers) {
    TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, reader.Words());
    messages.push_back(words);
  }
  return ParseEach(schema, messages);
}

}  // namespace

Result<std::shared_ptr<HostUpdate>> HostUpdate::Open(const std::shared_ptr<Store>& store,
                                                     const std::string& name,
                                                     const UpdateSettings& settings) {
  std::shared_ptr<HostUpdate> made(new HostUpdate(store, name, settings));
  if (settings.exchange != Exchange::kAllRanks) {
    TFHYBRID_ASSIGN_OR_RETURN(
        made->mailbox_,
        Mailbox::Create(made->Path("." + std::to_string(store->local_rank())), made->token_));
  }
  if (!settings.FromRanks() && store->is_leader()) {
    TFHYBRID_ASSIGN_OR_RETURN(made->posted_all_, Mailbox::Create(made->Path(".all"), made->token_));
  }
  return made;
}

HostUpdate::HostUpdate(const std::shared_ptr<Store>& store, std::string name,
                       UpdateSettings settings)
    : store_(store),
      directory_(store->directory()),
      token_(store->token()),
      name_(std::move(name)),
      settings_(std::move(settings)) {}

void HostUpdate::Keep(const std::vector<KeyGradients>& tables) {
  const MutexLock guard(posting_);
  std::vector<KeptGradients> batch;
  for (size_t t = 0; t < tables.size(); ++t) {
    const KeyGradients& table = tables[t];
    const int64_t floats = table.keys.size() * settings_.schema.dims[t];
    batch.push_back(
        {{table.keys.begin(), table.keys.end()}, {table.gradients, table.gradients + floats}});
  }
  kept_.push_back(std::move(batch));
}

std::vector<std::vector<KeyGradients>> HostUpdate::WithKept(
    const std::vector<KeyGradients>& batch) const {
  std::vector<std::vector<KeyGradients>> tables(settings_.schema.tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    for (const std::vector<KeptGradients>& kept : kept_) {
      tables[t].push_back(
          {kept[t].keys, kept[t].gradients.data(), RowLayout::Array(settings_.schema.dims[t])});
    }
    tables[t].push_back(batch[t]);
  }
  return tables;
}

void HostUpdate::FillNumbered(const Contribution& contribution, const MessageBuilder& message,
                              const ParallelFor& parallel_for) const {
  contribution.Write(message);
  packer_.Fill(settings_.schema, message, contribution.Factor(settings_), parallel_for);
}

Status HostUpdate::Pack(const std::vector<KeyGradients>& batch, const Contribution& contribution,
                        const std::function<Result<Span<int64_t>>(int64_t words)>& allocate,
                        const ParallelFor& parallel_for) {
  const MessageSchema& schema = settings_.schema;
  if (!contribution.failure.empty()) {
    const std::vector<int64_t> failure = FailureMessage(schema, 0, contribution.failure);
    TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> words,
                              allocate(static_cast<int64_t>(failure.size())));
    std::copy(failure.begin(), failure.end(), words.begin());
    return Status::Ok();
  }
  const MutexLock guard(posting_);
  const std::vector<int64_t>& counts = packer_.Number(WithKept(batch), parallel_for);
  TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> words, allocate(MessageWords(schema, counts)));
  AddTo(Counter::kSentBytes, words.size() * 8);
  FillNumbered(contribution, MessageBuilder(schema, counts, words), parallel_for);
  kept_.clear();
  return Status::Ok();
}

Status HostUpdate::PostBatch(const std::vector<KeyGradients>& batch,
                             const Contribution& contribution, const ParallelFor& parallel_for) {
  const MutexLock guard(posting_);
  Status posted;
  if (contribution.failure.empty()) {
    const std::vector<int64_t>& counts = packer_.Number(WithKept(batch), parallel_for);
    posted = Post(counts, [&](const MessageBuilder& message) {
      posting_.AssertHeld();
      FillNumbered(contribution, message, parallel_for);
    });
  } else {
    PostFailure(contribution.failure);
  }
  kept_.clear();
  return posted;
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

Result<std::vector<GradientMessage>> HostUpdate::Collect() {
  const PhaseTimer timer(Phase::kCollect);
  ++led_;
  for (int rank = 0; rank < static_cast<int>(settings_.local_ranks); ++rank) {
    if (static_cast<size_t>(rank) == readers_.size()) {
      TFHYBRID_ASSIGN_OR_RETURN(MailboxReader reader,
                                MailboxReader::Await(Path("." + std::to_string(rank)), token_,
                                                     [&] { return CheckRank(rank); }));
      readers_.push_back(std::move(reader));
    }
    TFHYBRID_RETURN_IF_ERROR(
        readers_[static_cast<size_t>(rank)].Wait(led_, [&] { return CheckRank(rank); }));
  }
  return ReadEach(settings_.schema, &readers_);
}

Status HostUpdate::CheckRank(int local_rank) const {
  const std::shared_ptr<Store> store = store_.lock();
  if (store != nullptr) return store->CheckRank(local_rank);
  return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
}

Status HostUpdate::PostAll(Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(
      const std::vector<GradientMessage> messages,
      ParseMessages(settings_.schema, words, static_cast<int64_t>(settings_.hosts.size())));
  return PostAll(messages);
}

Status HostUpdate::PostAll(const std::vector<GradientMessage>& messages) {
  TFHYBRID_RETURN_IF_ERROR(FailureOf(messages));
  int64_t words = 0;
  for (const GradientMessage& message : messages) words += message.header.words;
  if (!settings_.sharded) AddTo(Counter::kReceivedBytes, words * 8);
  return PostAll(WidenedWords(settings_.schema, messages),
                 [&](Span<int64_t> room) { Widen(settings_.schema, messages, room); });
}

Status HostUpdate::PostAll(int64_t words, const std::function<void(Span<int64_t>)>& fill) {
  TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> room, posted_all_->Write(words));
  fill(room);
  posted_all_->Post();
  return Status::Ok();
}

Result<std::vector<GradientMessage>> HostUpdate::ReadAll() {
  if (all_.empty()) {
    TFHYBRID_ASSIGN_OR_RETURN(MailboxReader reader, MailboxReader::Open(Path(".all"), token_));
    all_.push_back(std::move(reader));
  }
  return ReadApplied(settings_, &all_);
}

Status HostUpdate::Stage(const std::vector<GradientMessage>& messages,
                         const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  if (update_ == nullptr) {
    TFHYBRID_ASSIGN_OR_RETURN(UpdateJournal journal,
                              CreateJournal(Path(""), token_, settings_, tables));
    update_ = std::make_unique<TableUpdate>(std::move(journal));
  }
  const PhaseTimer timer(Phase::kPlan);
  const Status staged = update_->Stage(messages, tables, parallel_for);
  is_staged_ = staged.ok();
  return staged;
}

Status HostUpdate::Commit(const StepNumbers& numbers, const std::vector<TableWriter*>& tables,
                          const ParallelFor& parallel_for) {
  if (!is_staged_) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "An update is staged before it is committed, once");
  }
  is_staged_ = false;
  return update_->Commit(numbers, tables, parallel_for);
}

Status HostUpdate::Apply(const std::vector<GradientMessage>& messages, const StepNumbers& numbers,
                         const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(Stage(messages, tables, parallel_for));
  return Commit(numbers, tables, parallel_for);
}

Result<UpdateJournal> CreateJournal(const std::string& path, uint64_t token,
                                    const UpdateSettings& settings,
                                    const std::vector<TableWriter*>& tables) {
  int64_t row_floats = 0;
  for (const TableWriter* table : tables) {
    // Assume the optimizer with the most state, because it may be set later.
    row_floats = std::max(row_floats, table->dim() + MaxStateFloats(table->dim()) + kHistoryFloats);
  }
  return UpdateJournal::Create(path, token, settings, row_floats);
}

Result<std::vector<GradientMessage>> ReadApplied(const UpdateSettings& settings,
                                                 std::vector<MailboxReader>* readers) {
  if (settings.FromRanks()) return ReadEach(settings.schema, readers);
  TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, readers->front().Words());
  return ParseMessages(settings.schema, words, static_cast<int64_t>(settings.hosts.size()));
}

}  // namespace tfhybrid
