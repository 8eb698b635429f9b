// What a killed job leaves: a new leader takes it over, or says what is wrong with it.
#include "core/update/recovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_digest.h"
#include "core/update/host_update.h"
#include "core/update/roll_forward.h"
#include "core/util/crc32c.h"
#include "fuzz/patches.h"
#include "shm/temporary_directory.h"

namespace tfhybrid {
namespace {

constexpr char kJob[] = "job";

void Must(const Status& status) {
  if (!status.ok()) std::abort();
}

StoreConfig ConfigIn(const TemporaryDirectory& directory) {
  return {directory.path(), kJob, 0, "rank 0", 7};
}

std::string StoreIn(const TemporaryDirectory& directory) {
  return directory.File("tfhybrid-" + std::to_string(geteuid()) + "-" + kJob);
}

TableWriter* MakeTable(Store* store, const std::string& name, int64_t dim, OptimizerKind kind) {
  const auto table = store->OpenNamed({name, dim, {}, 0}, 0).Take();
  OptimizerConfig optimizer;
  optimizer.kind = kind;
  Must(table->writer->SetOptimizer(optimizer));
  return table->writer.get();
}

const MessageSchema kSchema = {{"user", "item"}, {3, 2}};
const std::vector<int64_t> kCounts = {20, 10};  // keys of each table in every message

// The keys first, first + 2, ... for both tables.
void Fill(int64_t first, const MessageBuilder& message) {
  for (size_t t = 0; t < kCounts.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    for (int64_t i = 0; i < kCounts[t]; ++i) message.keys(table)[i] = first + 2 * i;
    std::fill_n(message.gradients(table), kCounts[t] * kSchema.dims[t], 1.0f);
  }
}

std::vector<int64_t> MessageOf(int64_t first) {
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(kSchema, kCounts)));
  Fill(first, MessageBuilder(kSchema, kCounts, words));
  return words;
}

// As another rank does.
void PostInto(const std::string& path, uint64_t token, const std::vector<int64_t>& words) {
  Mailbox mailbox = Mailbox::Create(path, token).Take();
  const Span<int64_t> room = mailbox.Write(static_cast<int64_t>(words.size())).Take();
  std::copy(words.begin(), words.end(), room.begin());
  mailbox.Post();
}

// Two tables and two updates of both: "all", which is finished, its messages in one mailbox; and
// "each", with a mailbox per rank, half of whose lanes are done.
Files HalfDone() {
  const TemporaryDirectory directory;
  std::vector<std::string> reclaimed;
  const std::shared_ptr<Store> store = Store::Create(ConfigIn(directory), &reclaimed).Take();
  const std::vector<TableWriter*> tables = {
      MakeTable(store.get(), "user", 3, OptimizerKind::kAdagrad),
      MakeTable(store.get(), "item", 2, OptimizerKind::kSgd)};
  const std::vector<float> rates = {0.1f, 0.1f};
  UpdateSettings settings = {kSchema, {0, 0}, Reduction::kFrequency, Exchange::kAllRanks};

  const auto all = HostUpdate::Open(store, "all", settings).Take();
  std::vector<int64_t> words = MessageOf(0);
  const std::vector<int64_t> second = MessageOf(10);
  words.insert(words.end(), second.begin(), second.end());
  Must(all->PostAll(words));
  Must(all->Apply(all->ReadAll().Take(), {rates}, tables, RunInline));

  settings.exchange = Exchange::kLeaders;
  settings.local_ranks = 2;
  const auto each = HostUpdate::Open(store, "each", settings).Take();
  Must(each->Post(kCounts, [](const MessageBuilder& message) { Fill(100, message); }));
  PostInto(store->directory() + "/each.1", store->token(), second);
  Files files;
  Must(each->Apply(each->Collect().Take(), {rates}, tables,
                   [&](int64_t total, int64_t, const auto& work) {
                     work(0, total / 2);
                     if (total == UpdateJournal::kLanes) files = ReadFiles(store->directory());
                     work(total / 2, total);
                   }));
  if (files.empty()) std::abort();
  return files;
}

// The checksum of a journal over what stays the same, where its numbers lie inside the file.
void SealJournal(std::string* file) {
  constexpr size_t kAlignment = 64;
  JournalSegment segment;
  if (file->size() < kPageBytes) return;
  std::memcpy(&segment, file->data(), sizeof(segment));
  const size_t hosts_bytes = segment.ranks * sizeof(int64_t);
  const size_t tables_at = (kPageBytes + hosts_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool inside = segment.ranks < file->size() && segment.tables < file->size() &&
                      tables_at + segment.tables * sizeof(JournalTable) <= file->size();
  if (!inside) return;
  uint32_t crc = Crc32c(&segment.reduction,
                        offsetof(JournalSegment, crc) - offsetof(JournalSegment, reduction));
  crc = Crc32c(file->data() + kPageBytes, static_cast<int64_t>(hosts_bytes), crc);
  for (size_t table = 0; table < segment.tables; ++table) {
    crc = Crc32c(file->data() + tables_at + table * sizeof(JournalTable),
                 offsetof(JournalTable, beginning), crc);
  }
  segment.crc = crc;
  std::memcpy(file->data(), &segment, sizeof(segment));
}

void Recover(const TemporaryDirectory& directory) {
  const auto recovered = RecoverStore(ConfigIn(directory), RunInline);
  if (!recovered.ok()) return;
  // What it would tell another host, and what another host would make of it.
  const auto updates = LastUpdates(*recovered.value());
  if (updates.ok()) static_cast<void>(RollForward(updates.value(), *recovered.value(), RunInline));
  for (const char* name : {"user", "item"}) {
    const auto table = recovered.value()->Find(name);
    if (table != nullptr && !TableDigest(table.get()).ok()) std::abort();
  }
}

}  // namespace
}  // namespace tfhybrid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tfhybrid;
  static const Files* const half_done = new Files(HalfDone());
  const TemporaryDirectory directory;
  mkdir(StoreIn(directory).c_str(), 0700);
  Files files = Patched(*half_done, FuzzInput(data, size));
  if (size > 0 && (data[0] & kReseal) != 0) {
    SealJournal(&files["all.journal"]);
    SealJournal(&files["each.journal"]);
  }
  WriteFiles(files, StoreIn(directory));
  Recover(directory);
  return 0;
}
