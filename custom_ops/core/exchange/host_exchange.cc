#include "core/exchange/host_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/util/counters.h"

namespace tfhybrid {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "a host";
}

// Keys and key handles cannot be told from each other once they are merged.
Status CheckKeyHandles(const std::vector<GradientMessage>& messages) {
  const bool key_handles = JointOf(messages).key_handles;
  for (const GradientMessage& message : messages) {
    if (key_handles == ((message.header.form & kOfHandles) != 0)) continue;
    for (const Span<const int64_t>& keys : message.keys) {
      if (keys.empty()) continue;
      return Status::Error(StatusCode::kInvalidArgument,
                           "Either all ranks of a host train batches of data nodes or none. "
                           "Received: keys of some, key handles of others");
    }
  }
  return Status::Ok();
}

}  // namespace

void HostExchange::Fail(const std::string& why) {
  failure_ = FailureMessage(update_->settings().schema, form_, why);
}

void HostExchange::Merge(const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for) {
  const Result<std::vector<GradientMessage>> messages = update_->Collect();
  mailbox_room_ = update_->RoomForAll();
  table_room_.clear();
  for (const TableWriter* table : tables) table_room_.push_back(table->Room());
  failure_.clear();
  const UpdateSettings& settings = update_->settings();
  receivers_ = settings.sharded                        ? settings.Parties()
               : settings.exchange == Exchange::kOwner ? hosts_
                                                       : 1;
  const Status alike = messages.ok() ? CheckKeyHandles(messages.value()) : messages.status();
  if (alike.ok()) {
    joint_ = JointOf(messages.value());
    const std::vector<int64_t> one_host(messages.value().size(), host_);
    merger_.Merge(settings.schema, messages.value(), one_host, settings.allocations, receivers_,
                  parallel_for);
  } else {
    Fail(alike.message());
  }
  merged_at_ = PhaseClock::now();
}

void HostExchange::MergeOwned(Span<const int64_t> words, const ParallelFor& parallel_for) {
  AddTo(Counter::kReceivedBytes, words.size() * 8);
  failure_.clear();
  receivers_ = 1;
  const Status merged = TryMerge(words, parallel_for);
  if (!merged.ok()) Fail(merged.message());
}

Status HostExchange::TryMerge(Span<const int64_t> words, const ParallelFor& parallel_for) {
  const MessageSchema& schema = update_->settings().schema;
  TFHYBRID_ASSIGN_OR_RETURN(std::vector<GradientMessage> messages,
                            ParseMessages(schema, words, hosts_));
  TFHYBRID_RETURN_IF_ERROR(FailureOf(messages));
  if ((form_ & kBfloat16) != 0) {
    widened_.resize(static_cast<size_t>(WidenedWords(schema, messages)));
    Widen(schema, messages, widened_);
    TFHYBRID_ASSIGN_OR_RETURN(messages, ParseMessages(schema, widened_, hosts_));
  }
  joint_ = JointOf(messages);
  std::vector<int64_t> hosts(messages.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  merger_.Merge(schema, messages, hosts, {}, receivers_, parallel_for);
  return Status::Ok();
}

std::vector<int64_t> HostExchange::Splits() const {
  std::vector<int64_t> splits;
  splits.reserve(static_cast<size_t>(receivers_));
  for (int64_t receiver = 0; receiver < receivers_; ++receiver) {
    splits.push_back(failure_.empty()
                         ? MessageWords(update_->settings().schema, merger_.counts(receiver), form_)
                         : static_cast<int64_t>(failure_.size()));
  }
  return splits;
}

void HostExchange::Fill(Span<int64_t> words, const ParallelFor& parallel_for) const {
  const MessageSchema& schema = update_->settings().schema;
  // Connections count what goes to the owners of sharded tables.
  if (!update_->settings().sharded) AddTo(Counter::kSentBytes, words.size() * 8);
  std::vector<MessageBuilder> builders;
  int64_t at = 0, receiver = 0;
  for (const int64_t size : Splits()) {
    if (failure_.empty()) {
      builders.emplace_back(schema, merger_.counts(receiver), words.subspan(at, size), form_);
      WriteHeader(builders.back(), receiver++);
    } else {
      std::copy(failure_.begin(), failure_.end(), words.data() + at);
    }
    at += size;
  }
  if (failure_.empty()) merger_.Fill(schema, builders, parallel_for);
}

void HostExchange::WriteHeader(const MessageBuilder& message, int64_t receiver) const {
  MessageHeader* header = message.header();
  joint_.Write(message);
  // A process that gets all messages of a host counts each sample once.
  if (receiver != 0 && !update_->settings().sharded) header->samples = 0;
  header->room = mailbox_room_;
  for (size_t t = 0; t < table_room_.size(); ++t) {
    *message.room(static_cast<int64_t>(t)) = table_room_[t];
  }
}

HostExchange::Staged HostExchange::Stage(Span<const int64_t> words,
                                         const std::vector<TableWriter*>& tables,
                                         const ParallelFor& parallel_for) {
  return Stage(ParseMessages(update_->settings().schema, words, hosts_), nullptr, tables,
               parallel_for);
}

HostExchange::Staged HostExchange::Stage(const Result<std::vector<GradientMessage>>& messages,
                                         const BatchKeys* held,
                                         const std::vector<TableWriter*>& tables,
                                         const ParallelFor& parallel_for) {
  if (merged_at_ != PhaseClock::time_point()) {  // an embedding node has nothing to merge
    AddTime(Phase::kExchange, merged_at_, PhaseClock::now());
  }
  Staged staged = {false, ""};
  Status status = messages.ok() ? FailureOf(messages.value()) : messages.status();
  if (status.ok()) {
    status = TryStage(messages.value(), held, tables, parallel_for, &staged.vote);
    if (!status.ok()) staged.complaint = "On " + HostName() + ": ";
  }
  staged.complaint += status.message();
  return staged;
}

Status HostExchange::TryStage(const std::vector<GradientMessage>& messages, const BatchKeys* held,
                              const std::vector<TableWriter*>& tables,
                              const ParallelFor& parallel_for, bool* vote) {
  int64_t mailbox_room = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> table_room = messages.front().room;
  for (const GradientMessage& message : messages) {
    mailbox_room = std::min(mailbox_room, message.header.room);
    for (size_t t = 0; t < table_room.size(); ++t) {
      table_room[t] = std::min(table_room[t], message.room[t]);
    }
  }
  *vote = WidenedWords(update_->settings().schema, messages) > mailbox_room;
  TFHYBRID_RETURN_IF_ERROR(PostAll(messages, held, parallel_for));
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<GradientMessage> posted, update_->ReadAll());
  const Status staged = update_->Stage(posted, tables, parallel_for);
  const std::vector<int64_t> new_rows = update_->staged().NewRows(tables.size());
  for (size_t t = 0; t < table_room.size(); ++t) *vote = *vote || new_rows[t] > table_room[t];
  return staged;
}

Status HostExchange::PostAll(const std::vector<GradientMessage>& messages, const BatchKeys* held,
                             const ParallelFor& parallel_for) {
  if (held == nullptr || !JointOf(messages).key_handles) return update_->PostAll(messages);
  const MessageSchema& schema = update_->settings().schema;
  TFHYBRID_RETURN_IF_ERROR(resolved_.Resolve(*held, schema, messages, parallel_for));
  return update_->PostAll(resolved_.Words(schema), [&](Span<int64_t> words) {
    resolved_.Fill(schema, messages, words, parallel_for);
  });
}

}  // namespace tfhybrid
