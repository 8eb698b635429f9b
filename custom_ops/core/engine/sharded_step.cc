#include "core/engine/sharded_step.h"

#include <cstring>
#include <utility>

#include "core/util/words.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDecider = 0;  // the host whose leader says COMMIT

std::vector<int64_t> NumberWords(const StepNumbers& numbers) {
  WordWriter out;
  out.Put(numbers.learning_rates);
  out.Put(std::vector<double>{numbers.dense_squares});
  return out.Take();
}

// Those in front of a message.
Result<StepNumbers> NumbersOf(Span<const int64_t> words) {
  WordReader in(words);
  StepNumbers numbers;
  std::vector<double> dense;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&numbers.learning_rates));
  TFHYBRID_RETURN_IF_ERROR(in.Get(&dense));
  if (dense.size() != 1) {
    return Status::Error(
        StatusCode::kDataLoss,
        "An update has the squares of its dense gradients. Received: ", dense.size(), " numbers");
  }
  numbers.dense_squares = dense.front();
  return numbers;
}

// What a host does that sends such a frame.
const char* DeedOf(FrameKind kind) {
  if (kind == FrameKind::kUpdate) return " to send its gradients of";
  return kind == FrameKind::kStaged ? " to prepare" : " to commit";
}

}  // namespace

Result<ShardedStep::Agreed> ShardedStep::Run(const StepNumbers& numbers) {
  WordBuffer merged;
  std::vector<int64_t> splits;
  TFHYBRID_RETURN_IF_ERROR(tables_.merge(&merged, &splits));
  TFHYBRID_RETURN_IF_ERROR(SendUpdates(numbers, merged, splits));
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<UpdateInbox::Taken> taken, TakeUpdates());
  int64_t before = 0;
  for (int64_t host = 0; host < settings_.host; ++host) before += splits[static_cast<size_t>(host)];
  const auto mine = static_cast<size_t>(settings_.host);
  return Settle(numbers, merged.words().subspan(before, splits[mine]), taken);
}

Result<ShardedStep::Agreed> ShardedStep::Serve() {
  // Not recorded: nobody may train for hours. Once one host has sent its gradients, others should.
  TFHYBRID_RETURN_IF_ERROR(inbox_->AwaitAny(FrameKind::kUpdate, step_, 0, check_alive_));
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<UpdateInbox::Taken> taken, TakeUpdates());
  TFHYBRID_ASSIGN_OR_RETURN(const StepNumbers numbers, NumbersOf(taken.front().words));
  if (numbers.learning_rates.size() != settings_.schema.tables.size()) {
    return Status::Error(
        StatusCode::kDataLoss, "An update of ", settings_.schema.tables.size(),
        " tables has a learning rate for each. Received: ", numbers.learning_rates.size());
  }
  return Settle(numbers, {}, taken);
}

Result<ShardedStep::Agreed> ShardedStep::Settle(const StepNumbers& numbers, Span<const int64_t> own,
                                                const std::vector<UpdateInbox::Taken>& taken) {
  HostExchange::Staged staged = {false, ""};
  TFHYBRID_RETURN_IF_ERROR(Stage(numbers, own, taken, &staged));
  Said said = {std::move(staged.complaint), {}};
  const bool clips =
      settings_.clipping == Clipping::kNorm || settings_.clipping == Clipping::kGlobalNorm;
  if (clips && said.complaint.empty()) said.squares = tables_.squares();
  if (settings_.host == kDecider) return Decide(numbers, std::move(said));
  WordWriter out;
  out.Put(said.complaint);
  out.Put(said.squares);
  const std::vector<int64_t> words = out.Take();
  TFHYBRID_RETURN_IF_ERROR(Send(kDecider, FrameKind::kStaged, {words}));
  return TakeDecision(numbers);
}

Status ShardedStep::SendUpdates(const StepNumbers& numbers, const WordBuffer& merged,
                                const std::vector<int64_t>& splits) {
  const std::vector<int64_t> head = NumberWords(numbers);
  int64_t at = 0;
  for (int64_t party = 0; party < parties_; ++party) {
    const int64_t words = splits[static_cast<size_t>(party)];
    if (party != settings_.host) {
      TFHYBRID_RETURN_IF_ERROR(
          Send(party, FrameKind::kUpdate, {head, merged.words().subspan(at, words)}));
    }
    at += words;
  }
  return Status::Ok();
}

Result<std::vector<UpdateInbox::Taken>> ShardedStep::TakeUpdates() {
  std::vector<UpdateInbox::Taken> taken(static_cast<size_t>(sources_));
  for (int64_t host = 0; host < sources_; ++host) {
    if (host == settings_.host) continue;
    TFHYBRID_ASSIGN_OR_RETURN(taken[static_cast<size_t>(host)], Take(FrameKind::kUpdate, host));
  }
  return taken;
}

Status ShardedStep::Stage(const StepNumbers& numbers, Span<const int64_t> own,
                          const std::vector<UpdateInbox::Taken>& taken,
                          HostExchange::Staged* staged) const {
  const std::vector<int64_t> mine = NumberWords(numbers);
  const auto head = static_cast<int64_t>(mine.size());
  std::vector<Span<const int64_t>> messages;
  for (int64_t host = 0; host < sources_; ++host) {
    if (host == settings_.host) {
      messages.push_back(own);
      continue;
    }
    const Span<const int64_t> words = taken[static_cast<size_t>(host)].words;
    if (words.size() < head ||
        std::memcmp(words.data(), mine.data(), mine.size() * sizeof(int64_t)) != 0) {
      staged->complaint = "Learning rates or dense gradients of " + links_->NameOf(host) +
                          " differ from those of " +
                          links_->NameOf(settings_.host < sources_ ? settings_.host : 0);
      return Status::Ok();
    }
    messages.push_back(words.subspan(head, words.size() - head));
  }
  return tables_.stage(messages, staged);
}

Result<ShardedStep::Said> ShardedStep::TakeStaged(int64_t host) {
  TFHYBRID_ASSIGN_OR_RETURN(const UpdateInbox::Taken taken, Take(FrameKind::kStaged, host));
  WordReader in(taken.words);
  Said said;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&said.complaint));
  TFHYBRID_RETURN_IF_ERROR(in.Get(&said.squares));
  return said;
}

Result<ShardedStep::Agreed> ShardedStep::Decide(const StepNumbers& numbers, Said said) {
  for (int64_t host = 0; host < parties_; ++host) {
    if (host == kDecider) continue;
    TFHYBRID_ASSIGN_OR_RETURN(const Said other, TakeStaged(host));
    if (!said.complaint.empty() && !other.complaint.empty()) said.complaint += "; ";
    said.complaint += other.complaint;
    for (size_t t = 0; t < std::min(said.squares.size(), other.squares.size()); ++t) {
      // Every host has all gradients of a replicated table.
      if (IsSharded(t)) said.squares[t].Add(other.squares[t]);
    }
  }
  Agreed agreed = {numbers, said.complaint};
  agreed.numbers.squares = said.squares;
  WordWriter out;
  out.Put(said.complaint);
  out.Put(said.squares);
  const std::vector<int64_t> words = out.Take();
  for (int64_t host = 0; host < parties_; ++host) {
    // It holds for all once one has heard of it. A host that is gone is named by the next step, and
    // finishes this one when it recovers.
    if (host != kDecider) (void)Send(host, FrameKind::kCommit, {words});
  }
  return agreed;
}

Result<ShardedStep::Agreed> ShardedStep::TakeDecision(const StepNumbers& numbers) {
  TFHYBRID_ASSIGN_OR_RETURN(const UpdateInbox::Taken taken, Take(FrameKind::kCommit, kDecider));
  WordReader in(taken.words);
  Agreed agreed = {numbers, ""};
  TFHYBRID_RETURN_IF_ERROR(in.Get(&agreed.complaint));
  TFHYBRID_RETURN_IF_ERROR(in.Get(&agreed.numbers.squares));
  return agreed;
}

Result<UpdateInbox::Taken> ShardedStep::Take(FrameKind kind, int64_t host) {
  const std::vector<std::string>& tables = settings_.schema.tables;
  std::string awaited = links_->NameOf(host) + DeedOf(kind) + " update " +
                        std::to_string(step_.id) + " of table '" + tables.front() + "'";
  if (tables.size() > 1) awaited += " and " + std::to_string(tables.size() - 1) + " more";
  const Meetings::Wait wait(meetings_, std::move(awaited));
  return inbox_->Take(kind, step_, host, check_alive_);
}

Status ShardedStep::Send(int64_t host, FrameKind kind,
                         const std::vector<Span<const int64_t>>& pieces) {
  TFHYBRID_ASSIGN_OR_RETURN(Connection* const to, links_->Updates(host));
  std::vector<Span<const int64_t>> all = {
      {reinterpret_cast<const int64_t*>(&step_), sizeof(step_) / sizeof(int64_t)}};
  all.insert(all.end(), pieces.begin(), pieces.end());
  return to->Send(kind, all);
}

}  // namespace tfhybrid
