#include "core/engine/row_sender.h"

#include <utility>

#include "core/exchange/batch_frames.h"
#include "core/exchange/row_frames.h"
#include "core/util/counters.h"
#include "core/util/flush_denormals.h"

namespace tfhybrid {

void RowSender::Add(int64_t rank, std::unique_ptr<Connection> connection) {
  const MutexLock guard(mutex_);
  if (closed_) return;
  std::unique_ptr<Trainer>& trainer = trainers_[rank];
  if (trainer != nullptr) {
    trainer->connection->Shut();
    replaced_.push_back(std::move(trainer));
  }
  trainer = std::make_unique<Trainer>();
  trainer->connection = std::move(connection);
  trainer->thread = std::thread([this, its = trainer.get()] { Run(its); });
}

void RowSender::Announce(int64_t rank, int64_t ticket, Versions versions) {
  {
    const MutexLock guard(mutex_);
    const auto found = trainers_.find(rank);
    if (found == trainers_.end()) return;
    found->second->waiting.push_back({ticket, std::move(versions)});
    ++changes_;
  }
  changed_.NotifyAll();
}

void RowSender::Changed() {
  {
    const MutexLock guard(mutex_);
    if (trainers_.empty()) return;
    ++changes_;
  }
  changed_.NotifyAll();
}

void RowSender::Close() {
  std::vector<std::unique_ptr<Trainer>> ending;
  {
    const MutexLock guard(mutex_);
    closed_ = true;
    ending.swap(replaced_);
    for (auto& [rank, trainer] : trainers_) ending.push_back(std::move(trainer));
    trainers_.clear();
    for (const auto& trainer : ending) trainer->connection->Shut();
  }
  changed_.NotifyAll();
  for (const auto& trainer : ending) trainer->thread.join();
}

void RowSender::Run(Trainer* trainer) {
  const FlushDenormals flush;
  for (;;) {
    Ready ready;
    {
      const MutexLock guard(mutex_);
      for (;;) {
        if (closed_) return;
        if (Take(trainer, &ready)) break;
        const uint64_t seen = changes_;
        while (!closed_ && changes_ == seen) changed_.Wait(mutex_);
      }
    }
    // A trainer that is gone, or was replaced, gets nothing more.
    if (!Send(ready, trainer->connection.get()).ok()) return;
  }
}

bool RowSender::Take(Trainer* trainer, Ready* ready) {
  for (auto waiting = trainer->waiting.begin(); waiting != trainer->waiting.end();) {
    *ready = {keys_->Of(waiting->ticket), waiting->ticket, {}};
    if (ready->batch == nullptr) {  // dropped
      waiting = trainer->waiting.erase(waiting);
      continue;
    }
    for (auto wanted = waiting->versions.begin(); wanted != waiting->versions.end();) {
      Result<std::shared_ptr<OpenTable>> table = tables_->Get(wanted->first);
      if (table.ok() &&
          table.value()->reader->version() + ready->batch->staleness < wanted->second) {
        ++wanted;
        continue;
      }
      if (table.ok()) ready->tables.push_back(table.Take());
      wanted = waiting->versions.erase(wanted);
    }
    if (waiting->versions.empty()) {
      waiting = trainer->waiting.erase(waiting);
    } else {
      ++waiting;
    }
    if (!ready->tables.empty()) return true;
  }
  return false;
}

Status RowSender::Send(const Ready& ready, Connection* connection) const {
  SentBatch sent = {ready.ticket, false, {}};
  std::vector<TableRead> reads;
  int64_t size = 0;
  for (const auto& table : ready.tables) {
    const auto keys = ready.batch->keys.find(table->reader->name());
    Span<const int64_t> of_table;
    if (keys != ready.batch->keys.end()) {
      of_table = {keys->second.data(), static_cast<int64_t>(keys->second.size())};
    }
    const int64_t dim = table->reader->dim();
    sent.tables.push_back({table->reader->name(), dim, 0, of_table.size(), nullptr});
    reads.push_back({table, 0, of_table, nullptr});
    size += WordsOfRows(of_table.size(), dim);
  }
  const WordBuffer rows = WordBuffer::OfSize(size);
  int64_t at = 0;
  for (size_t t = 0; t < reads.size(); ++t) {
    const int64_t of_table = WordsOfRows(sent.tables[t].rows, sent.tables[t].dim);
    if (of_table > 0) rows.data[at + of_table - 1] = 0;  // with the padding
    reads[t].embeddings = reinterpret_cast<float*>(rows.data.get() + at);
    at += of_table;
  }
  sent.marked = !ready.batch->trains;
  std::vector<int64_t> marks;
  if (sent.marked) marks = MarkReads(&reads);
  const Result<std::vector<uint64_t>> versions = tables_->Read(reads);
  if (!versions.ok()) {
    for (SentTable& table : sent.tables) table.rows = 0;
    sent.failed = true;
    const std::vector<int64_t> head = SentWords(sent);
    return connection->Send(FrameKind::kSent, {head});
  }
  for (size_t t = 0; t < reads.size(); ++t) {
    sent.tables[t].version = versions.value()[t];
    AddTo(Counter::kServedRows, sent.tables[t].rows);
  }
  const std::vector<int64_t> head = SentWords(sent);
  const auto words = static_cast<int64_t>(head.size() + marks.size()) + size;
  AddTo(Counter::kServedBytes, words * static_cast<int64_t>(sizeof(int64_t)));
  return connection->Send(FrameKind::kSent, {head, marks, rows.words()});
}

}  // namespace tfhybrid
