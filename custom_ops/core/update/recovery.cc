#include "core/update/recovery.h"

#include <string>
#include <utility>
#include <vector>

#include "core/shm/directory.h"
#include "core/update/table_update.h"
#include "core/util/fault_point.h"
#include "core/util/flush_denormals.h"

namespace tfhybrid {
namespace {

constexpr char kJournalSuffix[] = ".journal";

Status FinishUpdate(const std::string& path, const Store& store, const ParallelFor& parallel_for) {
  TFHYBRID_ASSIGN_OR_RETURN(UpdateJournal journal, UpdateJournal::Open(path, store.token()));
  if (!journal.begun()) return Status::Ok();
  const UpdateSettings settings = journal.settings();
  std::vector<std::shared_ptr<OpenTable>> open;
  std::vector<TableWriter*> tables;
  bool published = true;
  for (size_t t = 0; t < settings.schema.tables.size(); ++t) {
    open.push_back(store.Find(settings.schema.tables[t]));
    if (open.back() == nullptr || open.back()->reader->dim() != settings.schema.dims[t]) {
      return Status::Error(StatusCode::kDataLoss, path, ".journal is damaged: it names table '",
                           settings.schema.tables[t], "'");
    }
    tables.push_back(open.back()->writer.get());
    const uint64_t version = journal.beginning(static_cast<int64_t>(t)).version;
    if (version > tables.back()->version() + 1) {
      return Status::Error(StatusCode::kDataLoss, path, ".journal is damaged: it leads table '",
                           settings.schema.tables[t], "' from version ", tables.back()->version(),
                           " to ", version);
    }
    published = published && tables.back()->version() >= version;
  }
  // All tables have it; the ranks may have touched their mailboxes since.
  if (published) return Status::Ok();
  std::vector<MailboxReader> readers;
  const Result<std::vector<GradientMessage>> messages =
      MessagesOf(path, store.token(), settings, &readers);
  if (!messages.ok()) {
    return Status::Error(StatusCode::kDataLoss, path, ".journal: an update was begun that cannot ",
                         "be finished: ", messages.status().message());
  }
  TFHYBRID_RETURN_IF_ERROR(
      TableUpdate(std::move(journal)).Finish(messages.value(), tables, parallel_for));
  for (const auto& table : open) table->SetPosted(table->reader->version());
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::string>> Journals(const std::string& directory) {
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(directory));
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (HasSuffix(name, kJournalSuffix)) paths.push_back(directory + "/" + Stem(name));
  }
  return paths;
}

Result<std::vector<GradientMessage>> MessagesOf(const std::string& path, uint64_t token,
                                                const UpdateSettings& settings,
                                                std::vector<MailboxReader>* readers) {
  const bool per_rank = settings.FromRanks();
  for (size_t rank = 0; rank < (per_rank ? settings.hosts.size() : 1); ++rank) {
    const std::string which = per_rank ? std::to_string(rank) : "all";
    TFHYBRID_ASSIGN_OR_RETURN(MailboxReader reader, MailboxReader::Open(path + "." + which, token));
    readers->push_back(std::move(reader));
  }
  return ReadApplied(settings, readers);
}

Result<std::unique_ptr<Store>> RecoverStore(const StoreConfig& config,
                                            const ParallelFor& parallel_for) {
  const FlushDenormals flush;
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Store::Recover(config));
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<std::string> journals, Journals(store->directory()));
  for (const std::string& path : journals) {
    TFHYBRID_RETURN_IF_ERROR(FinishUpdate(path, *store, parallel_for));
  }
  return store;
}

Status ForgetUpdates(const Store& store) {
  const auto is_of_update = [](const std::string& name) {
    return HasSuffix(name, kJournalSuffix) || HasSuffix(name, ".mail") ||
           HasSuffix(Stem(name), ".mail");
  };
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(store.directory()));
  for (const std::string& name : names) {
    if (!is_of_update(name)) continue;
    TFHYBRID_FAULT_POINT();
    TFHYBRID_RETURN_IF_ERROR(RemoveFile(store.directory() + "/" + name));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
