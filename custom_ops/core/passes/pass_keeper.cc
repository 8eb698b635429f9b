#include "core/passes/pass_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/shm/directory.h"
#include "core/shm/wait_word.h"
#include "core/util/copy_floats.h"
#include "core/util/flush_denormals.h"

namespace tfhybrid {
namespace {

void RemoveLeftPasses(const std::string& directory) {
  for (const std::string& name : NamesOrNone(directory)) {
    if (name.rfind("pass-", 0) == 0) unlink((directory + "/" + name).c_str());
  }
}

}  // namespace

Status PassKeeper::Start() {
  RemoveLeftPasses(host_.directory);
  TFHYBRID_ASSIGN_OR_RETURN(bell_, PassBell::Create(host_.directory, host_.token));
  next_.assign(static_cast<size_t>(host_.local_ranks), 0);
  thread_ = std::thread([this] { Run(); });
  return Status::Ok();
}

void PassKeeper::Close() {
  closed_ = true;
  if (bell_ != nullptr) bell_->Ring();
  if (thread_.joinable()) thread_.join();
}

void PassKeeper::Run() {
  const FlushDenormals flush;
  while (!closed_) {
    const uint64_t rung = bell_->rung();
    try {
      Tidy();
      for (int rank = 0; rank < host_.local_ranks; ++rank) TakeNew(rank);
    } catch (const std::bad_alloc&) {
      Fail(out_of_memory_);
    }
    bell_->Await(rung);
  }
}

void PassKeeper::TakeNew(int local_rank) {
  int64_t& next = next_[static_cast<size_t>(local_rank)];
  for (;; ++next) {
    const std::string path = PassFile::Path(host_.directory, local_rank, next);
    Result<PassFile> file = PassFile::Open(path, host_.token, next);
    if (!file.ok()) {
      if (file.status().code() != StatusCode::kNotFound) Fail(file.status());
      return;
    }
    Take(std::make_unique<OpenPass>(file.Take()));
  }
}

void PassKeeper::Take(std::unique_ptr<OpenPass> pass) {
  KeysByOwner asking;
  int64_t number = 0;
  {
    const MutexLock guard(mutex_);
    passes_.reserve(passes_.size() + 1);
    pass->tables.resize(static_cast<size_t>(pass->file.tables()));
    number = ++announcements_;
    try {
      Add(pass.get(), &asking);
    } catch (const std::bad_alloc&) {
      // It stands without keys until its rank ends it.
      for (PassTableState& table : pass->tables) table = PassTableState();
      pass->missing = 0;
      asking.clear();
      pass->file.Fail(out_of_memory_);
    }
    if (!failed_.ok()) pass->file.Fail(failed_);
    passes_.push_back(std::move(pass));
  }
  const Status told = Tell(host_.announce, asking, number);
  if (!told.ok()) Fail(told);
}

void PassKeeper::Add(OpenPass* pass, KeysByOwner* asking) {
  PassFile& file = pass->file;
  for (int64_t t = 0; t < file.tables(); ++t) {
    PassTableState& table = pass->tables[static_cast<size_t>(t)];
    table.name = file.name(t);
    const Span<const int64_t> keys = file.keys(t);
    table.index.Reset(keys.size());
    for (const int64_t key : keys) table.index.Number(key);
    table.arrived.assign(static_cast<size_t>(keys.size()), 0);
    table.asked.assign(static_cast<size_t>(keys.size()), announcements_);
    const auto allocation = host_.allocation(table.name);
    for (int64_t i = 0; i < keys.size(); ++i) {
      if (!CopyFromOther(pass, t, i)) {
        (*asking)[{table.name, allocation->OwnerOf(keys[i])}].push_back(keys[i]);
        bell_->Count(PassCounter::kAsked, 1);
      }
      if (table.arrived[static_cast<size_t>(i)] == 0) ++pass->missing;
    }
    for (int64_t owner = 0; owner < host_.hosts; ++owner) {
      const auto known = owners_.find({table.name, owner});
      if (known != owners_.end()) *file.owner(t, owner) = known->second;
    }
  }
  if (pass->missing == 0) file.SetState(PassState::kReady);
}

bool PassKeeper::CopyFromOther(OpenPass* pass, int64_t table, int64_t i) {
  PassTableState& to = pass->tables[static_cast<size_t>(table)];
  const int64_t key = pass->file.keys(table)[i];
  for (const auto& other : passes_) {
    for (size_t t = 0; t < other->tables.size(); ++t) {
      const PassTableState& from = other->tables[t];
      if (from.name != to.name) continue;
      const int64_t found = from.index.Find(key);
      if (found < from.released) continue;
      to.asked[static_cast<size_t>(i)] = from.asked[static_cast<size_t>(found)];
      if (from.arrived[static_cast<size_t>(found)] == 0) return true;
      const int64_t dim = pass->file.dim(table), its = static_cast<int64_t>(t);
      CopyFloats(other->file.rows(its) + found * dim, dim, pass->file.rows(table) + i * dim);
      pass->file.has_row(table)[i] = other->file.has_row(its)[found];
      to.arrived[static_cast<size_t>(i)] = 1;
      bell_->Count(PassCounter::kCopied, 1);
      return true;
    }
  }
  return false;
}

Status PassKeeper::Receive(int64_t owner, Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(const FreshRows fresh, ParseFresh(words));
  std::vector<int64_t> unwanted;
  int64_t number = 0;
  {
    const MutexLock guard(mutex_);
    std::vector<uint8_t> wanted(static_cast<size_t>(fresh.keys.size()));
    TFHYBRID_RETURN_IF_ERROR(Write(owner, fresh, wanted.data()));
    bell_->Count(PassCounter::kBytes, words.size() * int64_t{sizeof(int64_t)});
    number = announcements_;
    // Those whose passes ended before the owner had read what they announced, and came to know of
    // it too soon.
    for (int64_t i = 0; fresh.answers != 0 && i < fresh.keys.size(); ++i) {
      if (wanted[static_cast<size_t>(i)] == 0) unwanted.push_back(fresh.keys[i]);
    }
  }
  if (unwanted.empty()) return Status::Ok();
  return host_.release(owner, {fresh.table, fresh.dim, number, unwanted});
}

Status PassKeeper::Write(int64_t owner, const FreshRows& fresh, uint8_t* wanted) {
  bell_->Count(fresh.answers != 0 ? PassCounter::kFetched : PassCounter::kRefreshed,
               fresh.keys.size());
  owners_[{fresh.table, owner}] = {fresh.version, fresh.decays};
  for (const auto& pass : passes_) {
    for (int64_t t = 0; t < pass->file.tables(); ++t) {
      if (pass->tables[static_cast<size_t>(t)].name != fresh.table) continue;
      if (pass->file.dim(t) != fresh.dim) {
        return Status::Error(StatusCode::kInvalidArgument, "Rows of table '", fresh.table,
                             "' have ", pass->file.dim(t), " floats. Received: ", fresh.dim);
      }
      WriteRows(fresh, pass.get(), t, wanted);
      PassOwner* const of = pass->file.owner(t, owner);
      of->decays = fresh.decays;
      PublishWord(&of->version, fresh.version);
    }
    if (pass->missing == 0 && pass->file.state() == PassState::kAsked) {
      pass->file.SetState(PassState::kReady);
      AddTime(Phase::kPass, pass->asked_at, PhaseClock::now());
    }
  }
  return Status::Ok();
}

void PassKeeper::WriteRows(const FreshRows& fresh, OpenPass* pass, int64_t table, uint8_t* wanted) {
  PassTableState& its = pass->tables[static_cast<size_t>(table)];
  float* const rows = pass->file.rows(table);
  uint8_t* const has_row = pass->file.has_row(table);
  for (int64_t i = 0; i < fresh.keys.size(); ++i) {
    const int64_t found = its.index.Find(fresh.keys[i]);
    if (found < its.released) continue;
    wanted[i] = 1;
    CopyFloats(fresh.rows + i * fresh.dim, fresh.dim, rows + found * fresh.dim);
    has_row[found] = fresh.has_row[i];
    const auto index = static_cast<size_t>(found);
    // An answer to an announcement that was let go meanwhile may be older than what was loaded.
    if (fresh.answers < its.asked[index] || its.arrived[index] != 0) continue;
    its.arrived[index] = 1;
    --pass->missing;
  }
}

std::vector<const PassKeeper::PassTableState*> PassKeeper::Others(
    const PassTableState& table) const {
  std::vector<const PassTableState*> others;
  for (const auto& pass : passes_) {
    for (const PassTableState& its : pass->tables) {
      if (&its != &table && its.name == table.name) others.push_back(&its);
    }
  }
  return others;
}

void PassKeeper::Release(OpenPass* pass, KeysByOwner* released) {
  for (int64_t t = 0; t < pass->file.tables(); ++t) {
    PassTableState& table = pass->tables[static_cast<size_t>(t)];
    if (table.name.empty()) continue;  // memory ran out for it
    const Span<const int64_t> keys = pass->file.keys(t);
    const int32_t* const last = pass->file.last(t);
    const auto done = static_cast<int32_t>(pass->file.done(t));
    const bool ended = pass->file.ended();
    const auto allocation = host_.allocation(table.name);
    const int64_t before = table.released;
    while (table.released < keys.size() && (ended || last[table.released] < done)) {
      ++table.released;
    }
    const std::vector<const PassTableState*> others = Others(table);
    for (int64_t i = before; i < table.released; ++i) {
      const int64_t key = keys[i];
      const bool wanted = std::any_of(
          others.begin(), others.end(),
          [&](const PassTableState* other) { return other->index.Find(key) >= other->released; });
      if (!wanted) (*released)[{table.name, allocation->OwnerOf(key)}].push_back(key);
    }
  }
}

void PassKeeper::LetGo(OpenPass* pass, KeysByOwner* released) {
  pass->file.End();
  Release(pass, released);
  pass->file.SetState(PassState::kLetGo);
}

Status PassKeeper::ReleaseUsed() {
  KeysByOwner released;
  int64_t number = 0;
  {
    const MutexLock guard(mutex_);
    for (const auto& pass : passes_) Release(pass.get(), &released);
    number = announcements_;
  }
  return Tell(host_.release, released, number);
}

void PassKeeper::Tidy() {
  KeysByOwner released;
  int64_t number = 0;
  {
    const MutexLock guard(mutex_);
    for (const auto& pass : passes_) {
      if (pass->file.ended()) LetGo(pass.get(), &released);
    }
    passes_.erase(
        std::remove_if(passes_.begin(), passes_.end(),
                       [](const auto& pass) { return pass->file.state() == PassState::kLetGo; }),
        passes_.end());
    number = announcements_;
  }
  const Status told = Tell(host_.release, released, number);
  if (!told.ok()) Fail(told);
}

void PassKeeper::LetAllGo() {
  {
    const MutexLock guard(mutex_);
    for (const auto& pass : passes_) pass->file.End();
  }
  Tidy();
}

void PassKeeper::Fail(const Status& why) {
  const MutexLock guard(mutex_);
  if (failed_.ok()) failed_ = why;
  for (const auto& pass : passes_) pass->file.Fail(why);
}

Status PassKeeper::Tell(const std::function<Status(int64_t owner, const AnnouncedKeys& keys)>& tell,
                        const KeysByOwner& keys, int64_t number) {
  for (const auto& [owner, of_owner] : keys) {
    TFHYBRID_RETURN_IF_ERROR(tell(owner.second, {owner.first, 0, number, of_owner}));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
