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

}  // namespace

Result<ShardedStep::Agreed> ShardedStep::Run(
    const StepNumbers& numbers, const Tables& tables,
    const std::function<std::vector<SquareSum>()>& squares) {
  WordBuffer merged;
  std::vector<int64_t> splits;
  TFHYBRID_RETURN_IF_ERROR(tables.merge(&merged, &splits));
  TFHYBRID_RETURN_IF_ERROR(SendShares(numbers, merged, splits));
  int64_t before = 0;
  for (int64_t host = 0; host < settings_.host; ++host) before += splits[static_cast<size_t>(host)];
  const auto mine = static_cast<size_t>(settings_.host);
  std::string difference;
  TFHYBRID_ASSIGN_OR_RETURN(
      const WordBuffer shares,
      TakeShares(numbers, merged.words().subspan(before, splits[mine]), &difference));
  HostExchange::Staged staged = {false, difference};
  if (difference.empty()) TFHYBRID_RETURN_IF_ERROR(tables.stage(shares.words(), &staged));
  Said said = {std::move(staged.complaint), {}};
  const bool clips =
      settings_.clipping == Clipping::kNorm || settings_.clipping == Clipping::kGlobalNorm;
  if (clips && said.complaint.empty()) said.squares = squares();
  if (settings_.host == kDecider) return Decide(numbers, std::move(said));
  WordWriter out;
  out.Put(said.complaint);
  out.Put(said.squares);
  const std::vector<int64_t> words = out.Take();
  TFHYBRID_RETURN_IF_ERROR(Send(kDecider, FrameKind::kStaged, {words}));
  return TakeDecision(numbers);
}

Status ShardedStep::SendShares(const StepNumbers& numbers, const WordBuffer& merged,
                               const std::vector<int64_t>& splits) {
  const std::vector<int64_t> head = NumberWords(numbers);
  int64_t at = 0;
  for (int64_t host = 0; host < hosts_; ++host) {
    const int64_t words = splits[static_cast<size_t>(host)];
    if (host != settings_.host) {
      TFHYBRID_RETURN_IF_ERROR(
          Send(host, FrameKind::kUpdate, {head, merged.words().subspan(at, words)}));
    }
    at += words;
  }
  return Status::Ok();
}

Result<WordBuffer> ShardedStep::TakeShares(const StepNumbers& numbers, Span<const int64_t> own,
                                           std::string* difference) {
  const std::vector<int64_t> mine = NumberWords(numbers);
  const auto head = static_cast<int64_t>(mine.size());
  std::vector<UpdateInbox::Taken> taken;
  int64_t total = own.size();
  for (int64_t host = 0; host < hosts_; ++host) {
    if (host == settings_.host) {
      taken.emplace_back();
      continue;
    }
    TFHYBRID_ASSIGN_OR_RETURN(UpdateInbox::Taken share, Take(FrameKind::kUpdate, host));
    if (share.words.size() < head ||
        std::memcmp(share.words.data(), mine.data(), mine.size() * sizeof(int64_t)) != 0) {
      *difference = "Learning rates or dense gradients differ between hosts " +
                    std::to_string(settings_.host) + " and " + std::to_string(host);
    } else {
      share.words = share.words.subspan(head, share.words.size() - head);
    }
    total += share.words.size();
    taken.push_back(std::move(share));
  }
  WordBuffer all = WordBuffer::OfSize(total);
  int64_t at = 0;
  for (int64_t host = 0; host < hosts_; ++host) {
    const Span<const int64_t> share =
        host == settings_.host ? own : taken[static_cast<size_t>(host)].words;
    std::memcpy(all.data.get() + at, share.data(),
                static_cast<size_t>(share.size()) * sizeof(int64_t));
    at += share.size();
  }
  return all;
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
  for (int64_t host = 0; host < hosts_; ++host) {
    if (host == kDecider) continue;
    TFHYBRID_ASSIGN_OR_RETURN(const Said other, TakeStaged(host));
    if (!said.complaint.empty() && !other.complaint.empty()) said.complaint += "; ";
    said.complaint += other.complaint;
    for (size_t t = 0; t < std::min(said.squares.size(), other.squares.size()); ++t) {
      // Of a replicated table every host has all gradients.
      if (IsSharded(t)) said.squares[t].Add(other.squares[t]);
    }
  }
  Agreed agreed = {numbers, said.complaint};
  agreed.numbers.squares = said.squares;
  WordWriter out;
  out.Put(said.complaint);
  out.Put(said.squares);
  const std::vector<int64_t> words = out.Take();
  for (int64_t host = 0; host < hosts_; ++host) {
    if (host != kDecider) TFHYBRID_RETURN_IF_ERROR(Send(host, FrameKind::kCommit, {words}));
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

Status ShardedStep::Send(int64_t host, FrameKind kind,
                         const std::vector<Span<const int64_t>>& pieces) {
  TFHYBRID_ASSIGN_OR_RETURN(Connection* const to, links_->Updates(host));
  std::vector<Span<const int64_t>> all = {
      {reinterpret_cast<const int64_t*>(&step_), sizeof(step_) / sizeof(int64_t)}};
  all.insert(all.end(), pieces.begin(), pieces.end());
  return to->Send(kind, all);
}

}  // namespace tfhybrid
