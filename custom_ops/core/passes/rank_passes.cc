#include "core/passes/rank_passes.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/shm/wait_word.h"
#include "core/util/copy_floats.h"

namespace tfhybrid {

int64_t RankPasses::PassView::Find(int64_t key) const {
  const int64_t row = pass->indices[static_cast<size_t>(table)].Find(key);
  if (row < 0 || pass->file.last(table)[row] < done) return -1;
  return row;
}

void RankPasses::PassView::Copy(int64_t row, int64_t owner, float* embedding) const {
  const PassFile& file = pass->file;
  const int64_t dim = file.dim(table);
  const Decays decays = file.owner(table, owner)->decays;
  CopyFloats(file.rows(table) + row * dim, dim, embedding);
  if (file.has_row(table)[row] == 0) ScaleRow(decays.initial, dim, embedding);
  ScaleRow(decays.rows, dim, embedding);
}

RequestedKeys RankPasses::Request(const std::string& table, int64_t dim, Span<const int64_t> keys,
                                  const int32_t* batch_of,
                                  const std::function<bool(int64_t)>& belongs) {
  UniqueKeys unique;
  unique.Reset(keys.size());
  std::vector<uint32_t> numbers(static_cast<size_t>(keys.size()));
  unique.Number(keys, numbers.data());
  std::vector<int32_t> last(static_cast<size_t>(unique.size()), 0);
  for (size_t i = 0; i < numbers.size(); ++i) {
    last[numbers[i]] = std::max(last[numbers[i]], batch_of[i]);
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < last.size(); ++i) {
    if (belongs(unique.keys()[static_cast<int64_t>(i)])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return last[a] < last[b]; });
  RequestedKeys requested = {table, dim, {}, {}};
  for (const size_t i : order) {
    requested.keys.push_back(unique.keys()[static_cast<int64_t>(i)]);
    requested.last.push_back(last[i]);
  }
  return requested;
}

Result<int64_t> RankPasses::Announce(const std::vector<RequestedKeys>& requested, int64_t batches,
                                     bool refuses) {
  const MutexLock guard(mutex_);
  if (rank_.hosts == 1) return next_++;  // all rows are near: it has ended already
  TFHYBRID_RETURN_IF_ERROR(Ring());      // so that nothing is made where nobody would come
  const int64_t number = next_;
  const std::string path = PassFile::Path(rank_.directory, rank_.local_rank, number);
  TFHYBRID_ASSIGN_OR_RETURN(
      PassFile file, PassFile::Create(path, rank_.token, number, requested, rank_.hosts, batches));
  const auto pass = std::make_shared<Pass>(std::move(file), number, refuses, path);
  for (int64_t t = 0; t < pass->file.tables(); ++t) {
    pass->indices.emplace_back();
    pass->indices.back().Reset(pass->file.keys(t).size());
    for (const int64_t key : pass->file.keys(t)) pass->indices.back().Number(key);
  }
  passes_[number] = pass;
  ++next_;
  bell_->Count(PassCounter::kPasses, 1);
  TFHYBRID_RETURN_IF_ERROR(Ring());
  return number;
}

Status RankPasses::Ring() {
  while (bell_ == nullptr) {
    Result<std::unique_ptr<PassBell>> opened = PassBell::Open(rank_.directory, rank_.token);
    if (!opened.ok()) return opened.status();
    bell_ = opened.Take();
  }
  bell_->Ring();
  return Status::Ok();
}

Result<std::shared_ptr<RankPasses::Pass>> RankPasses::Find(int64_t number) {
  const auto found = passes_.find(number);
  if (found != passes_.end()) return found->second;
  return Status::Error(StatusCode::kNotFound, "Passes that were announced and have not ended are ",
                       passes_.size(), ". Received: the number ", number);
}

Status RankPasses::Begin(int64_t number, int64_t batch) {
  const MutexLock guard(mutex_);
  if (passes_.count(number) == 0 && number >= 0 && number < next_) return Status::Ok();  // ended
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Pass> pass, Find(number));
  if (batch < 0 || batch >= pass->file.batches()) {
    return Status::Error(StatusCode::kInvalidArgument, "The pass has ", pass->file.batches(),
                         " batches. Received: batch ", batch);
  }
  pass->begun = true;
  for (int64_t t = 0; t < pass->file.tables(); ++t) {
    pass->file.SetDone(t, std::max(pass->file.done(t), batch));
  }
  return Status::Ok();
}

Status RankPasses::End(int64_t number) {
  std::shared_ptr<Pass> pass;
  {
    const MutexLock guard(mutex_);
    if (passes_.count(number) == 0 && number >= 0 && number < next_) return Status::Ok();
    TFHYBRID_ASSIGN_OR_RETURN(pass, Find(number));
    passes_.erase(number);
    pass->file.End();
    TFHYBRID_RETURN_IF_ERROR(Ring());
  }
  // The leader may not have found it yet.
  while (!pass->file.AwaitState(PassState::kLetGo, kWaitSliceMs)) {
    TFHYBRID_RETURN_IF_ERROR(rank_.check_alive());
  }
  unlink(pass->path.c_str());
  return Status::Ok();
}

void RankPasses::EndAll() {
  std::vector<int64_t> numbers;
  {
    const MutexLock guard(mutex_);
    for (const auto& [number, pass] : passes_) numbers.push_back(number);
  }
  for (const int64_t number : numbers) (void)End(number);
}

void RankPasses::CountPost(const std::vector<std::string>& tables) {
  const MutexLock guard(mutex_);
  for (const auto& [number, pass] : passes_) {
    if (!pass->begun) continue;
    for (int64_t t = 0; t < pass->file.tables(); ++t) {
      const int64_t done = pass->file.done(t);
      if (done >= pass->file.batches()) continue;
      if (std::find(tables.begin(), tables.end(), pass->file.name(t)) == tables.end()) continue;
      pass->file.SetDone(t, done + 1);
    }
  }
}

std::vector<RankPasses::PassView> RankPasses::Of(const std::string& table) {
  std::vector<PassView> views;
  const MutexLock guard(mutex_);
  for (const auto& [number, pass] : passes_) {
    if (pass->file.ended()) continue;  // by the leader, which has let all go
    for (int64_t t = 0; pass->begun && t < pass->file.tables(); ++t) {
      const int64_t done = pass->file.done(t);
      if (pass->file.name(t) == table && done < pass->file.batches()) {
        views.push_back({pass, t, done});
      }
    }
  }
  return views;
}

Status RankPasses::Await(const PassView& view, int64_t owner, uint64_t version,
                         const std::function<Status()>& check) const {
  const PassFile& file = view.pass->file;
  while (!file.AwaitState(PassState::kReady, kWaitSliceMs)) {
    TFHYBRID_RETURN_IF_ERROR(rank_.check_alive());
  }
  const PassOwner& of = *file.owner(view.table, owner);
  for (;;) {
    if (file.state() == PassState::kFailed) return file.failure();
    if (!view.Holds() || WaitWord(&of.version, version, kWaitSliceMs)) return Status::Ok();
    TFHYBRID_RETURN_IF_ERROR(rank_.check_alive());
    TFHYBRID_RETURN_IF_ERROR(check());
  }
  return Status::Ok();
}

void RankPasses::CountKeys(int64_t hits, int64_t misses) {
  if (hits == 0 && misses == 0) return;
  hits_ += hits;
  misses_ += misses;
  const MutexLock guard(mutex_);
  bell_->Count(PassCounter::kHits, hits);  // there is one: a pass was announced
  bell_->Count(PassCounter::kMisses, misses);
}

PassCounts RankPasses::counts() const {
  const MutexLock guard(mutex_);
  PassCounts counts = {next_, hits_, misses_};
  for (const auto& [number, pass] : passes_) {
    for (int64_t t = 0; t < pass->file.tables(); ++t) {
      counts.standing_rows += pass->file.keys(t).size();
    }
    counts.standing_bytes += pass->file.bytes();
  }
  return counts;
}

}  // namespace tfhybrid
