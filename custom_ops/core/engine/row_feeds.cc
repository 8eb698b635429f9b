#include "core/engine/row_feeds.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "core/engine/held_writers.h"

namespace tfhybrid {
namespace {

// Keys of an announcement that are sent at once; meanwhile no update can be applied.
constexpr int64_t kKeysAtOnce = 8192;
// Likewise, of rows that are brought to the cache: some milliseconds.
constexpr int64_t kBroughtAtOnce = 256;
// Long enough for an update that waits for the table to get it.
constexpr std::chrono::microseconds kBetweenBrought{200};

}  // namespace

RowFeeds::RowFeeds(const std::vector<int64_t>& ranks, Deliver deliver)
    : ranks_(ranks), deliver_(std::move(deliver)), feeds_(ranks.size()) {
  for (size_t host = 0; host < ranks.size(); ++host) {
    threads_.push_back(std::make_unique<SerialThread>());
  }
}

void RowFeeds::Close() {
  closing_ = true;
  bringing_.Join();
  for (const auto& thread : threads_) thread->Join();
}

void RowFeeds::Announce(int64_t host, const std::shared_ptr<OpenTable>& table,
                        const AnnouncedKeys& announced) {
  bool training = false;
  {
    // Before they are read: an update in between then sends them twice, and never too seldom.
    const MutexLock guard(mutex_);
    TableFeed& feed = feeds_[static_cast<size_t>(host)][announced.table];
    for (const int64_t key : announced.keys) feed.keys.Add(key, announced.number);
    training = Trains(host, table->reader->version(), &feed);
  }
  Status sent;
  for (int64_t first = 0; first < announced.keys.size() && sent.ok(); first += kKeysAtOnce) {
    const int64_t count = std::min(kKeysAtOnce, announced.keys.size() - first);
    const Span<const int64_t> keys = announced.keys.subspan(first, count);
    const EarlyRead early = ReadEarly(table.get(), announced.number, keys);
    const HeldWriters held({table});
    sent = Send(host, table.get(), announced.number, keys, early);
  }
  if (!sent.ok()) return Refuse(host, sent);
  // Evaluation leaves the cache to the rows that training needs.
  if (!training || table->reader->files().empty()) return;
  bringing_.Submit([this, host, table,
                    keys = std::vector<int64_t>(announced.keys.begin(), announced.keys.end())] {
    BringAhead(host, table, keys);
  });
}

bool RowFeeds::Trains(int64_t host, uint64_t version, TableFeed* feed) const {
  if (version != feed->version) {
    feed->version = version;
    feed->training = ranks_[static_cast<size_t>(host)];
  }
  return feed->training > 0 && feed->training-- > 0;
}

void RowFeeds::BringAhead(int64_t host, const std::shared_ptr<OpenTable>& table,
                          const std::vector<int64_t>& keys) {
  const Span<const int64_t> all(keys);
  for (int64_t first = 0; first < all.size() && !closing_; first += kBroughtAtOnce) {
    if (first > 0) std::this_thread::sleep_for(kBetweenBrought);
    const auto some = all.subspan(first, std::min(kBroughtAtOnce, all.size() - first));
    const HeldWriters held({table});
    TableWriter* const writer = held.all().front();
    std::vector<int64_t> rows = RowsToBring(host, writer, some);
    if (!rows.empty()) writer->chunks().files().BringAhead(std::move(rows));
  }
}

std::vector<int64_t> RowFeeds::RowsToBring(int64_t host, TableWriter* writer,
                                           Span<const int64_t> keys) {
  std::vector<int64_t> wanted;
  int64_t of_all_hosts = 0;
  {
    const MutexLock guard(mutex_);
    for (size_t of = 0; of < feeds_.size(); ++of) {
      const auto feed = feeds_[of].find(writer->name());
      if (feed == feeds_[of].end()) continue;
      of_all_hosts += feed->second.keys.size();
      if (of != static_cast<size_t>(host)) continue;
      std::copy_if(keys.begin(), keys.end(), std::back_inserter(wanted),
                   [&](int64_t key) { return feed->second.keys.Find(key) != 0; });
    }
  }
  // More would push out each other before their updates come.
  if (2 * of_all_hosts >= writer->chunks().files().slots()) return {};
  RowSet found;
  writer->Find(wanted, &found);
  std::vector<int64_t>& rows = found.rows;
  rows.erase(std::remove(rows.begin(), rows.end(), KeyIndex::kMissing), rows.end());
  return rows;
}

void RowFeeds::Refuse(int64_t host, const Status& why) {
  threads_[static_cast<size_t>(host)]->Submit(
      [this, host, words = FailureWords(why)] { deliver_(host, FrameKind::kFailure, words); });
}

void RowFeeds::RefuseAll(const Status& why) {
  for (int64_t host = 0; host < static_cast<int64_t>(threads_.size()); ++host) Refuse(host, why);
}

void RowFeeds::Release(int64_t host, const AnnouncedKeys& released) {
  const MutexLock guard(mutex_);
  auto& of_host = feeds_[static_cast<size_t>(host)];
  const auto found = of_host.find(released.table);
  if (found == of_host.end()) return;
  for (const int64_t key : released.keys) {
    const int64_t announcement = found->second.keys.Find(key);
    // One that was announced again since comes by another connection, which may be the faster.
    if (announcement != 0 && announcement <= released.number) found->second.keys.Remove(key);
  }
}

void RowFeeds::Changed(const std::shared_ptr<OpenTable>& table,
                       const std::vector<Span<const int64_t>>& keys) {
  for (int64_t host = 0; host < static_cast<int64_t>(threads_.size()); ++host) {
    std::vector<int64_t> changed;
    {
      const MutexLock guard(mutex_);
      auto& of_host = feeds_[static_cast<size_t>(host)];
      const auto found = of_host.find(table->reader->name());
      if (found == of_host.end()) continue;
      // A host that has no keys now keeps up with the decay: it may announce some before the next.
      changed = ToSend(*table, keys, &found->second);
      if (found->second.keys.empty()) continue;
    }
    // Without keys, too: it says which version the others are of.
    const Status sent = Send(host, table.get(), 0, changed, {});
    if (!sent.ok()) Refuse(host, sent);
  }
}

std::vector<int64_t> RowFeeds::ToSend(const OpenTable& table,
                                      const std::vector<Span<const int64_t>>& keys,
                                      TableFeed* feed) const {
  table.writing.AssertHeld();
  std::vector<int64_t> changed;
  const float decay = table.reader->decays().rows;
  // It grows only where all rows were multiplied by it, as they lie.
  const bool all = (table.writer->optimizer().flags & kEveryRow) != 0 || decay > feed->decay;
  feed->decay = decay;
  if (all) {
    feed->keys.ForEach([&](int64_t key) { changed.push_back(key); });
    return changed;
  }
  const auto take = [&](Span<const int64_t> some) {
    for (const int64_t key : some) {
      if (feed->keys.Find(key) != 0) changed.push_back(key);
    }
  };
  for (const Span<const int64_t>& some : keys) take(some);
  take(table.writer->removal().keys());
  return changed;
}

RowFeeds::EarlyRead RowFeeds::ReadEarly(OpenTable* table, int64_t answers,
                                        Span<const int64_t> keys) {
  TableReader* const reader = table->reader.get();
  if (reader->files().empty()) return {};
  EarlyRead early = {reader->Sequence(), reader->version(), nullptr};
  Result<std::shared_ptr<FreshFrame>> frame = Read(reader, answers, keys);
  if (frame.ok()) early.frame = frame.Take();
  return early;
}

Result<std::shared_ptr<FreshFrame>> RowFeeds::Read(TableReader* reader, int64_t answers,
                                                   Span<const int64_t> keys) {
  auto frame =
      std::make_shared<FreshFrame>(MakeFresh({reader->name(), reader->dim(), reader->version(),
                                              answers, reader->decays(), keys, nullptr, nullptr}));
  TFHYBRID_RETURN_IF_ERROR(reader->LookupRaw(keys, frame->rows, frame->has_row));
  return frame;
}

Status RowFeeds::Send(int64_t host, OpenTable* table, int64_t answers, Span<const int64_t> keys,
                      const EarlyRead& early) {
  TableReader* const reader = table->reader.get();
  std::shared_ptr<FreshFrame> frame = early.frame;
  // An update has come in between. Its rows are read once more, from the page cache.
  if (frame == nullptr || early.version != reader->version() ||
      !reader->SequenceIs(early.sequence)) {
    TFHYBRID_ASSIGN_OR_RETURN(frame, Read(reader, answers, keys));
  }
  if (answers != 0) {
    const MutexLock guard(mutex_);
    TableFeed& feed = feeds_[static_cast<size_t>(host)][reader->name()];
    if (!feed.fed) feed.decay = reader->decays().rows;
    feed.fed = true;
  }
  threads_[static_cast<size_t>(host)]->Submit(
      [this, host, frame] { deliver_(host, FrameKind::kFresh, frame->words.words()); });
  return Status::Ok();
}

}  // namespace tfhybrid
