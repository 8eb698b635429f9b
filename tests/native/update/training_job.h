// Training with shared memory, as a host's ranks do it, all of them played by one process; and what
// is wrong with a store beside the model of it.
#ifndef TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_JOB_H_
#define TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_JOB_H_

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/update/gradient_packer.h"
#include "core/update/host_update.h"
#include "core/update/recovery.h"
#include "update/training_model.h"

namespace tfhybrid {

constexpr char kTrainingJob[] = "training";
constexpr char kTrainingUpdate[] = "adam";

inline StoreConfig TrainingStore(const std::string& shm_directory, int local_rank) {
  return {shm_directory, kTrainingJob, local_rank, "rank " + std::to_string(local_rank), 77};
}

inline std::string TrainingDirectory(const std::string& shm_directory) {
  return shm_directory + "/tfhybrid-" + std::to_string(geteuid()) + "-" + kTrainingJob;
}

// Recovers the store of a host that has no others.
inline Result<std::unique_ptr<Store>> RecoverAlone(const StoreConfig& config,
                                                   const ParallelFor& parallel_for) {
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, RecoverStore(config, parallel_for));
  TFHYBRID_RETURN_IF_ERROR(ForgetUpdates(*store));
  return store;
}

class TrainingJob {
 public:
  // Creates the store and its tables.
  static Result<std::unique_ptr<TrainingJob>> Create(const TrainingPlan& plan,
                                                     const std::string& shm_directory) {
    std::vector<std::string> reclaimed;
    TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store,
                              Store::Create(TrainingStore(shm_directory, 0), &reclaimed));
    TFHYBRID_RETURN_IF_ERROR(MakeTables(plan, store.get()));
    return GoOn(plan, shm_directory, std::move(store));
  }

  // Makes the tables that the store has not, with their optimizers.
  static Status MakeTables(const TrainingPlan& plan, Store* store) {
    for (const PlannedTable& table : plan.tables) {
      if (store->Find(table.config.name) == nullptr) {
        TFHYBRID_RETURN_IF_ERROR(store->OpenNamed(table.config, 0).status());
      }
      TFHYBRID_RETURN_IF_ERROR(
          store->Find(table.config.name)->writer->SetOptimizer(table.optimizer));
    }
    return Status::Ok();
  }

  // Trains with a store that was recovered.
  static Result<std::unique_ptr<TrainingJob>> GoOn(const TrainingPlan& plan,
                                                   const std::string& shm_directory,
                                                   std::shared_ptr<Store> store) {
    std::unique_ptr<TrainingJob> job(new TrainingJob(plan));
    UpdateSettings settings;
    for (const PlannedTable& table : plan.tables) {
      settings.schema.tables.push_back(table.config.name);
      settings.schema.dims.push_back(table.config.dim);
      job->tables_.push_back(store->Find(table.config.name));
      job->writers_.push_back(job->tables_.back()->writer.get());
    }
    settings.hosts = plan.hosts;
    settings.reduction = plan.reduction;
    settings.exchange = plan.exchange;
    settings.clipping = plan.clipping;
    settings.clip_limit = plan.clip_limit;
    settings.sharded = plan.sharded;
    settings.local_ranks = static_cast<int64_t>(plan.hosts.size());
    job->stores_.push_back(std::move(store));
    const int posting = settings.FromRanks() ? static_cast<int>(plan.hosts.size()) : 1;
    for (int rank = 0; rank < posting; ++rank) {
      if (rank > 0) {
        TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<Store> other,
                                  Store::Attach(TrainingStore(shm_directory, rank)));
        job->stores_.push_back(std::move(other));
      }
      TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<HostUpdate> update,
                                HostUpdate::Open(job->stores_.back(), kTrainingUpdate, settings));
      job->updates_.push_back(std::move(update));
    }
    return job;
  }

  // One update of all tables.
  Status Train(uint64_t version, const ParallelFor& parallel_for) {
    TFHYBRID_RETURN_IF_ERROR(Stage(version, parallel_for));
    StepNumbers numbers = {{}, plan_.DenseSquares(version)};
    for (size_t t = 0; t < tables_.size(); ++t) {
      numbers.learning_rates.push_back(plan_.Rate(t, version));
    }
    return updates_.front()->Commit(numbers, writers_, parallel_for);
  }

  // All of it that may fail.
  Status Stage(uint64_t version, const ParallelFor& parallel_for) {
    std::vector<int64_t> all;
    for (size_t rank = 0; rank < plan_.hosts.size(); ++rank) {
      TFHYBRID_RETURN_IF_ERROR(PostOf(version, rank, parallel_for, &all));
    }
    HostUpdate* leader = updates_.front().get();
    const bool gathered = plan_.exchange == Exchange::kAllRanks;
    if (gathered) TFHYBRID_RETURN_IF_ERROR(leader->PostAll(all));
    for (const auto& table : tables_) table->CountPost();
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<GradientMessage> messages,
                              gathered ? leader->ReadAll() : leader->Collect());
    return leader->Stage(messages, writers_, parallel_for);
  }

  Store* store() const { return stores_.front().get(); }

 private:
  explicit TrainingJob(TrainingPlan plan) : plan_(std::move(plan)) {}

  // Posts a rank's message, or puts it behind the others where the leader posts for all.
  Status PostOf(uint64_t version, size_t rank, const ParallelFor& parallel_for,
                std::vector<int64_t>* all) {
    std::vector<Batch> batches;
    std::vector<std::vector<KeyGradients>> gradients;
    for (size_t t = 0; t < tables_.size(); ++t) {
      batches.push_back(BatchOf(plan_, version, rank, t));
      gradients.push_back({{batches[t].keys, batches[t].gradients.data(),
                            RowLayout::Array(plan_.tables[t].config.dim)}});
    }
    const std::vector<int64_t>& counts = packer_.Number(gradients, parallel_for);
    const MessageSchema& schema = updates_.front()->settings().schema;
    const auto fill = [&](const MessageBuilder& message) {
      message.header()->samples = 1;
      message.header()->event_time = plan_.EventTime(version, rank);
      packer_.Fill(schema, message, 1.0f, parallel_for);
    };
    if (plan_.exchange == Exchange::kLeaders) return updates_[rank]->Post(counts, fill);
    const int64_t words = MessageWords(schema, counts);
    all->resize(all->size() + static_cast<size_t>(words));
    fill(MessageBuilder(schema, counts, Span<int64_t>(&*all->end() - words, words)));
    return Status::Ok();
  }

  const TrainingPlan plan_;
  GradientPacker packer_;
  std::vector<std::shared_ptr<Store>> stores_;
  std::vector<std::shared_ptr<OpenTable>> tables_;
  std::vector<TableWriter*> writers_;
  std::vector<std::shared_ptr<HostUpdate>> updates_;
};

// What differs between histories, of rows or of waiting keys, and what the model remembers, or
// nothing. `clock`: whether they know the event time.
inline std::string HistoryDifference(const TableWriter& writer, const PolicyModel& model,
                                     const std::map<int64_t, PolicyModel::Past>& wanted,
                                     const Moment& now, bool clock) {
  if (writer.rows() != static_cast<int64_t>(wanted.size())) {
    return std::to_string(writer.rows()) + " histories instead of " +
           std::to_string(wanted.size()) + "; ";
  }
  std::ostringstream difference;
  for (int64_t row = 0; row < writer.rows(); ++row) {
    const int64_t key = writer.chunks().KeyOf(row);
    const auto found = wanted.find(key);
    if (found == wanted.end()) {
      difference << "history of the foreign key " << key << "; ";
      continue;
    }
    const PolicyModel::Past& past = found->second;
    const RowHistory& history = *writer.chunks().Row(row).history;
    if (Frequency(writer.policy(), history, now) !=
            static_cast<float>(model.Frequency(past, now)) ||
        history.last_step != static_cast<uint32_t>(past.steps.back()) ||
        history.last_time != (clock ? past.time : kNoTime)) {
      difference << "history of " << key << "; ";
    }
  }
  return difference.str();
}

// What differs between what a table remembers of its keys and the model of it, or nothing.
inline std::string PolicyDifference(const TableWriter& writer, const TrainingModel& model,
                                    size_t table) {
  if (writer.policy().kind == PolicyKind::kNone) return "";
  const PolicyModel& policy = model.policy(table);
  std::string difference = HistoryDifference(writer, policy, policy.rows(), model.now(), true);
  if (writer.page().event_time() != model.now().time) difference += "event time; ";
  if (writer.waiting() == nullptr) return difference;
  // Without a half-life, as those of the model that wait are of one step each.
  PolicyModel plain{RowPolicy()};
  difference += HistoryDifference(*writer.waiting(), plain, policy.waiting(), model.now(), false);
  if (writer.waiting()->version() != model.version()) difference += "version of the waiting; ";
  return difference;
}

// What differs between a table and the model of it, or nothing.
inline std::string TableDifference(const OpenTable& open, const TrainingModel& model,
                                   size_t table) {
  std::ostringstream difference;
  difference << PolicyDifference(*open.writer, model, table);
  const TrainingModel::Rows& wanted = model.rows(table);
  const int64_t dim = open.reader->dim();
  const int64_t count = open.reader->Stats().rows;
  if (open.reader->version() != model.version() || open.posted != model.version()) {
    difference << "version " << open.reader->version() << ", posted " << open.posted << "; ";
  }
  if (count != static_cast<int64_t>(wanted.size()) || open.writer->rows() != count) {
    difference << count << " rows instead of " << wanted.size() << "; ";
    return difference.str();
  }
  const auto keys_size = static_cast<size_t>(count);
  const int64_t state_floats = open.writer->chunks().state_floats();
  std::vector<int64_t> keys(keys_size);
  std::vector<float> rows(keys_size * static_cast<size_t>(dim)), looked_up(rows.size());
  std::vector<float> states(keys_size * static_cast<size_t>(state_floats));
  for (const Status& status : {open.reader->ReadRows(0, count, keys.data(), rows.data()),
                               open.reader->Lookup(keys, looked_up.data()),
                               open.writer->chunks().ReadState(0, count, states.data())}) {
    if (!status.ok()) return status.message();
  }
  std::set<int64_t> seen(keys.begin(), keys.end());
  if (seen.size() != keys_size) difference << "a key has two rows; ";
  const auto row_bytes = static_cast<size_t>(dim) * sizeof(float);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key = keys[static_cast<size_t>(i)];
    const auto found = wanted.find(key);
    const float* row = rows.data() + i * dim;
    if (found == wanted.end()) {
      difference << "row of the foreign key " << key << "; ";
    } else if (std::memcmp(model.Embedding(table, found->second).data(), row, row_bytes) != 0) {
      difference << "embedding of " << key << "; ";
    } else if (state_floats > 0 &&
               std::memcmp(found->second.data() + dim, states.data() + i * state_floats,
                           static_cast<size_t>(state_floats) * sizeof(float)) != 0) {
      difference << "state of " << key << "; ";
    }
    if (std::memcmp(looked_up.data() + i * dim, row, row_bytes) != 0) {
      difference << "lookup of " << key << "; ";
    }
  }
  return difference.str();
}

// What the names of a table's files begin with.
inline std::string FileName(const TableReader& reader) {
  const std::string path = TablePaths("", reader.name()).Table();
  return path.substr(1, path.rfind('.') - 1);
}

// What a table that has just grown may be making ahead (store/row_chunks.h, store/growing_index.h).
inline void EraseMadeAhead(const TableReader& reader, std::set<std::string>* files) {
  const std::string name = FileName(reader);
  const TableStats stats = reader.Stats();
  const int64_t rows = LocatorOf(reader.shape()).ChunkRows(stats.chunks);
  if (RowChunkBytes(rows, reader.dim()) >= kWorthAThread) {
    files->erase(name + ".rows." + std::to_string(stats.chunks));
    files->erase(name + ".state." + std::to_string(stats.chunks));
    files->erase(name + ".history." + std::to_string(stats.chunks));
  }
  if (IndexBytes(IndexKind::kKeys, 2 * stats.index_slots) < kWorthAThread) return;
  const auto index = files->lower_bound(name + ".index.");
  if (index != files->end() && index->rfind(name + ".index.", 0) == 0) {
    files->erase(index);
  }
}

// Files of a table on a disk beside the one that holds its rows; and what it has of its own in the
// store.
inline std::string EraseTier(const Store& store, const TableReader& reader,
                             std::set<std::string>* files) {
  if (reader.files().empty()) return "";
  const std::string name = FileName(reader);
  files->erase(name + ".tier");
  const bool has_rows = reader.Stats().file_bytes > 0;
  const auto cache = files->lower_bound(name + ".cache.");
  if (has_rows && cache != files->end()) files->erase(cache);
  const std::filesystem::directory_iterator entries(
      TierDirectory(reader.files(), store.directory(), store.token(), reader.name()));
  const auto found = std::distance(begin(entries), end(entries));
  return found == (has_rows ? 1 : 0) ? "" : std::to_string(found) + " files of " + name + "; ";
}

// Files that no table accounts for. After an update tables may be making some ahead.
inline std::string StrayFiles(const Store& store, bool after_update) {
  std::set<std::string> files;
  std::string stray;
  for (const auto& entry : std::filesystem::directory_iterator(store.directory())) {
    files.insert(entry.path().filename().string());
  }
  for (const char* name : {"store", "rank-0", "rank-1"}) files.erase(name);
  for (const auto& entry : store.tables()) {
    const TableReader& reader = *entry.second->reader;
    const std::string name = FileName(reader);
    files.erase(name + ".table");
    stray += EraseTier(store, reader, &files);
    for (int64_t chunk = 0; chunk < reader.Stats().chunks; ++chunk) {
      files.erase(name + ".rows." + std::to_string(chunk));
      files.erase(name + ".state." + std::to_string(chunk));
      files.erase(name + ".history." + std::to_string(chunk));
    }
    const auto index = files.lower_bound(name + ".index.");
    if (index != files.end()) files.erase(index);
    if (after_update) EraseMadeAhead(reader, &files);
  }
  for (const std::string& file : files) stray += file + "; ";
  return stray;
}

// What is wrong with a store that was just recovered, or nothing. `finished`: whether an update had
// to be finished.
inline std::string Difference(const Store& store, const TrainingModel& model, bool finished) {
  std::string difference;
  for (size_t t = 0; t < model.plan().tables.size(); ++t) {
    const std::string& name = model.plan().tables[t].config.name;
    const auto table = store.Find(name);
    const std::string of_table = table == nullptr ? "missing" : TableDifference(*table, model, t);
    if (!of_table.empty()) difference += "table '" + name + "': " + of_table;
  }
  const std::string stray = StrayFiles(store, finished);
  return stray.empty() ? difference : difference + "stray files: " + stray;
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_UPDATE_TRAINING_JOB_H_
