#include "core/update/roll_forward.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "core/shm/directory.h"
#include "core/update/host_update.h"
#include "core/update/recovery.h"
#include "core/update/table_update.h"
#include "core/util/fault_point.h"
#include "core/util/flush_denormals.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

// An update as one host tells it to another.
struct SentUpdate {
  std::string name;
  UpdateSettings settings;
  std::vector<uint64_t> versions;  // of each table, that it leads to
  StepNumbers numbers;             // with clip factors
  // Words of the messages. There are none for sharded tables: each host has kept its own.
  std::vector<int64_t> words;
};

Status CutShort() {
  return Status::Error(StatusCode::kDataLoss,
                       "What another host sent of its last update is cut short");
}

void Put(const SentUpdate& update, WordWriter* out) {
  out->Put(update.name);
  out->Put(static_cast<int64_t>(update.settings.reduction));
  out->Put(update.settings.hosts);
  out->Put(static_cast<int64_t>(update.settings.schema.tables.size()));
  for (const std::string& table : update.settings.schema.tables) out->Put(table);
  out->Put(update.settings.schema.dims);
  out->Put(update.versions);
  out->Put(update.numbers.learning_rates);
  out->Put(update.numbers.clip_factors);
  out->Put(static_cast<int64_t>(update.settings.clipping));
  out->Put(update.settings.sharded ? 1 : 0);
  out->Put(std::vector<float>{update.settings.clip_limit});
  out->Put(update.words);
}

Result<SentUpdate> Get(WordReader* in) {
  SentUpdate update;
  int64_t reduction = 0, tables = 0, clipping = 0, sharded = 0;
  std::vector<float> clip_limit;
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.name));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&reduction));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.settings.hosts));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&tables));
  for (int64_t t = 0; t < tables; ++t) {
    std::string table;
    TFHYBRID_RETURN_IF_ERROR(in->Get(&table));
    update.settings.schema.tables.push_back(std::move(table));
  }
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.settings.schema.dims));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.versions));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.numbers.learning_rates));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.numbers.clip_factors));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&clipping));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&sharded));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&clip_limit));
  TFHYBRID_RETURN_IF_ERROR(in->Get(&update.words));
  const size_t count = update.settings.schema.tables.size();
  const bool whole = update.settings.schema.dims.size() == count &&
                     update.versions.size() == count &&
                     update.numbers.learning_rates.size() == count &&
                     update.numbers.clip_factors.size() == count && clip_limit.size() == 1;
  if (!whole || count == 0 || update.settings.hosts.empty() ||
      update.name.find('/') != std::string::npos || reduction < 0 ||
      reduction > static_cast<int64_t>(Reduction::kMean) || clipping < 0 ||
      clipping > static_cast<int64_t>(Clipping::kGlobalNorm)) {
    return CutShort();
  }
  update.settings.clipping = static_cast<Clipping>(clipping);
  update.settings.clip_limit = clip_limit.front();
  update.settings.reduction = static_cast<Reduction>(reduction);
  update.settings.sharded = sharded != 0;
  update.settings.exchange = Exchange::kAllRanks;  // from here on their messages lie in one mailbox
  return update;
}

// The message of all that a leader has staged last.
Result<std::vector<int64_t>> LastWords(const std::string& path, const Store& store) {
  TFHYBRID_ASSIGN_OR_RETURN(MailboxReader mailbox,
                            MailboxReader::Open(path + ".all", store.token()));
  TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, mailbox.Words());
  return std::vector<int64_t>(words.begin(), words.end());
}

// The last update of a journal, or one without a name where there is none that would be of use.
Result<SentUpdate> LastUpdate(const std::string& path, const Store& store) {
  SentUpdate update;
  TFHYBRID_ASSIGN_OR_RETURN(const UpdateJournal journal, UpdateJournal::Open(path, store.token()));
  update.settings = journal.settings();
  if (update.settings.FromRanks()) return update;  // there is one host alone
  for (size_t t = 0; t < update.settings.schema.tables.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    const std::shared_ptr<OpenTable> open = store.Find(update.settings.schema.tables[t]);
    const uint64_t version = journal.beginning(table).version;
    if (open == nullptr || version == 0 || open->reader->version() != version) return update;
    update.versions.push_back(version);
    update.numbers.learning_rates.push_back(journal.beginning(table).learning_rate);
    update.numbers.clip_factors.push_back(journal.beginning(table).clip_factor);
  }
  if (!update.settings.sharded) {
    TFHYBRID_ASSIGN_OR_RETURN(update.words, LastWords(path, store));
  }
  update.name = FileName(path);
  return update;
}

// As a leader does it: message into the mailbox, journal, tables.
Status Apply(const SentUpdate& update, const Store& store, const std::vector<TableWriter*>& tables,
             const ParallelFor& parallel_for) {
  const std::string path = store.directory() + "/" + update.name;
  TFHYBRID_ASSIGN_OR_RETURN(Mailbox mailbox, Mailbox::Create(path + ".all", store.token()));
  TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> room,
                            mailbox.Write(static_cast<int64_t>(update.words.size())));
  std::memcpy(room.data(), update.words.data(), update.words.size() * sizeof(int64_t));
  mailbox.Post();
  TFHYBRID_FAULT_POINT();
  std::vector<MailboxReader> readers;
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<GradientMessage> messages,
                            MessagesOf(path, store.token(), update.settings, &readers));
  TFHYBRID_ASSIGN_OR_RETURN(UpdateJournal journal,
                            CreateJournal(path, store.token(), update.settings, tables));
  TableUpdate staged(std::move(journal));
  TFHYBRID_RETURN_IF_ERROR(staged.Stage(messages, tables, parallel_for));
  return staged.Commit(update.numbers, tables, parallel_for);
}

Status ApplyIfMissing(const SentUpdate& update, const Store& store,
                      const ParallelFor& parallel_for) {
  std::vector<std::shared_ptr<OpenTable>> open;
  std::vector<TableWriter*> tables;
  size_t missing = 0;
  for (size_t t = 0; t < update.versions.size(); ++t) {
    const std::string& name = update.settings.schema.tables[t];
    open.push_back(store.Find(name));
    const uint64_t version = open.back() == nullptr ? 0 : open.back()->reader->version();
    const bool near = version == update.versions[t] || version + 1 == update.versions[t];
    if (open.back() == nullptr || !near ||
        open.back()->reader->dim() != update.settings.schema.dims[t]) {
      return Status::Error(StatusCode::kDataLoss, "Table '", name, "' is of version ", version,
                           ", too far from version ", update.versions[t], " of another host");
    }
    tables.push_back(open.back()->writer.get());
    missing += version != update.versions[t];
  }
  if (missing == 0) return Status::Ok();
  if (missing < tables.size()) {
    return Status::Error(StatusCode::kDataLoss, "An update is in some of its tables alone");
  }
  TFHYBRID_RETURN_IF_ERROR(Apply(update, store, tables, parallel_for));
  for (const auto& table : open) table->SetPosted(table->reader->version());
  return Status::Ok();
}

}  // namespace

Result<std::vector<int64_t>> LastUpdates(const Store& store) {
  WordWriter out;
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<std::string> journals, Journals(store.directory()));
  for (const std::string& path : journals) {
    TFHYBRID_ASSIGN_OR_RETURN(const SentUpdate update, LastUpdate(path, store));
    if (!update.name.empty()) Put(update, &out);
  }
  return out.Take();
}

Status RollForward(Span<const int64_t> updates, const Store& store,
                   const ParallelFor& parallel_for) {
  const FlushDenormals flush;
  WordReader in(updates);
  std::vector<SentUpdate> sent;
  while (!in.done()) {
    TFHYBRID_ASSIGN_OR_RETURN(SentUpdate update, Get(&in));
    // That another host has committed it proves that this one had staged it.
    if (update.settings.sharded) {
      TFHYBRID_ASSIGN_OR_RETURN(update.words,
                                LastWords(store.directory() + "/" + update.name, store));
    }
    sent.push_back(std::move(update));
  }
  TFHYBRID_RETURN_IF_ERROR(ForgetUpdates(store));
  for (const SentUpdate& update : sent) {
    TFHYBRID_RETURN_IF_ERROR(ApplyIfMissing(update, store, parallel_for));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
