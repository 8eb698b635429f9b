#include "core/store/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "core/shm/directory.h"
#include "core/store/store_files.h"
#include "core/util/hash.h"
#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

constexpr int kAttachPollMs = 2;
constexpr int kMaxJobName = 64;

Status CheckJob(const std::string& job) {
  const bool legal = !job.empty() && job.size() <= kMaxJobName &&
                     job.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._-") == std::string::npos;
  if (legal) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "A job's name has 1 to ", kMaxJobName,
                       " letters, digits, '.', '_' or '-'. Received: '", job, "'");
}

// Removes every store of this user whose processes are all dead. REQUIRES: the HostMutex is held.
void ReclaimDead(const std::string& shm_directory, std::vector<std::string>* reclaimed) {
  for (const std::string& job : StoredJobs(shm_directory)) {
    const std::string path = StoreDirectory(shm_directory, job);
    if (!LivingProcesses(path).empty()) continue;
    const int64_t bytes = BytesIn(path);
    const std::string holder = DescribeHolder(RankPath(path, 0));
    static_cast<void>(RemoveStoreFiles(path));
    reclaimed->push_back(path + ": " + std::to_string(bytes) + " bytes left by " + holder);
  }
}

// What was under its temporary name when its process died. A table in the making has an index.
Status RemoveUnfinished(const std::string& directory, const std::string& name) {
  TFHYBRID_RETURN_IF_ERROR(RemoveFile(directory + "/" + name));
  const std::string complete = Stem(name);
  if (!HasSuffix(complete, ".table")) return Status::Ok();
  return RemoveFile(directory + "/" + Stem(complete) + ".index.1");
}

Status SameShape(const TableReader& reader, const TableConfig& config) {
  const Initializer initial = reader.initializer();
  const uint64_t seed =
      TableSeed(config.job_seed, config.name.data(), static_cast<int64_t>(config.name.size()));
  if (reader.dim() != config.dim) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name, "' has dim ",
                         reader.dim(), " on the leader. Received: dim=", config.dim);
  }
  if (initial.kind != config.initializer.kind || initial.a != config.initializer.a ||
      initial.b != config.initializer.b || reader.shape().seed != seed) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "' has another initializer or seed on the leader: all ranks must build "
                         "the same model");
  }
  if (reader.files() != config.files || reader.cache_bytes() != config.cache_bytes) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "' has another storage on the leader: all ranks must build the same "
                         "model, and a job that is resumed from memory keeps path and cache_bytes");
  }
  if (!(reader.policy() == config.policy)) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "' has another admission or eviction on the leader: all ranks must build "
                         "the same model");
  }
  if (!(reader.shape().shard == config.shard)) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "' has another placement on the leader, or other hosts: all ranks must "
                         "build the same model");
  }
  return Status::Ok();
}

bool NeedsAdmission(const RowPolicy& policy) { return policy.admission > 1; }

// Returns the configuration of a table of waiting keys, which holds their histories only.
TableConfig WaitingConfig(const TableConfig& config) {
  RowPolicy policy;
  policy.kind = PolicyKind::kWaiting;
  policy.slices_log2 = config.policy.slices_log2;
  policy.unseen_steps = config.policy.waiting_steps;
  return {WaitingName(config.name), 1, {}, config.job_seed, policy, config.shard};
}

void Link(const std::shared_ptr<OpenTable>& table, const std::shared_ptr<OpenTable>& waiting) {
  table->waiting = waiting;
  const MutexLock guard(table->writing);
  if (table->writer != nullptr) table->writer->SetWaiting(waiting->writer.get());
}

}  // namespace

std::string WaitingName(const std::string& table_name) { return table_name + "~waiting"; }

void OpenTable::CountPost() {
  ++posted;
  if (waiting != nullptr) ++waiting->posted;
}

void OpenTable::SetPosted(uint64_t version) {
  posted = version;
  if (waiting != nullptr) waiting->posted = version;
}

Result<std::unique_ptr<Store>> Store::Create(const StoreConfig& config,
                                             std::vector<std::string>* reclaimed) {
  TFHYBRID_RETURN_IF_ERROR(CheckJob(config.job));
  const HostMutex mutex(HostMutexPath(config.shm_directory));
  TFHYBRID_RETURN_IF_ERROR(mutex.status());
  ReclaimDead(config.shm_directory, reclaimed);
  const std::string directory = StoreDirectory(config.shm_directory, config.job);
  if (mkdir(directory.c_str(), 0700) != 0) {
    if (errno != EEXIST) {
      return Status::Error(StatusCode::kSystem, "Cannot create ", directory, ": ",
                           SystemMessage(errno));
    }
    struct stat made;
    if (lstat(directory.c_str(), &made) == 0 &&
        (!S_ISDIR(made.st_mode) || made.st_uid != geteuid())) {
      return Status::Error(StatusCode::kSystem, directory, " is in the way: user ", made.st_uid,
                           " has made it, not this one. Choose another name with init(job=...), or "
                           "have it removed, by that user or by root");
    }
    return Status::Error(StatusCode::kAlreadyExists, "A job named '", config.job,
                         "' is running on this host: ", LivingProcesses(directory),
                         ". Choose another name with init(job=...), or end that job first. If "
                         "this job spans several hosts, two of them share ",
                         config.shm_directory);
  }
  TFHYBRID_ASSIGN_OR_RETURN(LivenessLock alive,
                            LivenessLock::Acquire(RankPath(directory, 0), config.description));
  // Under a temporary name until it is complete: to a new leader no store is better than half of
  // one.
  const std::string temporary = directory + "/store.new";
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile segment,
      CreateSegment(temporary, {SegmentKind::kStore, config.token, 0}, sizeof(SegmentHeader),
                    "the store of job '" + config.job + "'"));
  if (rename(temporary.c_str(), (directory + "/store").c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return std::unique_ptr<Store>(new Store(config, directory, std::move(alive), std::move(segment)));
}

Result<std::unique_ptr<Store>> Store::Recover(const StoreConfig& config) {
  TFHYBRID_RETURN_IF_ERROR(CheckJob(config.job));
  TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, Claim(config));
  const Status attached = store->AttachTables();
  if (attached.ok()) return store;
  // A store is there; what it lacks is damage.
  if (attached.code() != StatusCode::kNotFound) return attached;
  return Status::Error(StatusCode::kDataLoss, attached.message());
}

// Becomes the leader of a dead store. The mutex is held no longer: once this process has its lock
// nobody takes the store for dead, and ~Store() wants the mutex.
Result<std::unique_ptr<Store>> Store::Claim(const StoreConfig& config) {
  const HostMutex mutex(HostMutexPath(config.shm_directory));
  TFHYBRID_RETURN_IF_ERROR(mutex.status());
  const std::string directory = StoreDirectory(config.shm_directory, config.job);
  const std::string living = LivingProcesses(directory);
  if (!living.empty()) {
    return Status::Error(StatusCode::kAlreadyExists, "Job '", config.job, "' still runs: ", living);
  }
  TFHYBRID_ASSIGN_OR_RETURN(const MappedFile found, MappedFile::OpenReadOnly(directory + "/store"));
  StoreConfig taken = config;
  if (found.size() >= static_cast<int64_t>(sizeof(SegmentHeader))) {
    taken.token = reinterpret_cast<const SegmentHeader*>(found.data())->token;
  }
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile segment,
                            OpenSegment(directory + "/store", {SegmentKind::kStore, taken.token, 0},
                                        sizeof(SegmentHeader)));
  TFHYBRID_ASSIGN_OR_RETURN(LivenessLock alive,
                            LivenessLock::Acquire(RankPath(directory, 0), config.description));
  return std::unique_ptr<Store>(new Store(taken, directory, std::move(alive), std::move(segment)));
}

Status Store::AttachTables() {
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<std::string> files, NamesIn(directory_));
  std::vector<std::string> names;
  for (const std::string& name : files) {
    if (HasSuffix(name, ".new")) TFHYBRID_RETURN_IF_ERROR(RemoveUnfinished(directory_, name));
    if (!HasSuffix(name, ".table")) continue;
    TFHYBRID_ASSIGN_OR_RETURN(
        const MappedFile file,
        OpenSegment(directory_ + "/" + name, {SegmentKind::kTable, config_.token, 0},
                    sizeof(TableSegment)));
    const TableShape& shape = reinterpret_cast<const TableSegment*>(file.data())->shape;
    names.emplace_back(shape.name, strnlen(shape.name, kMaxTableName));
  }
  for (const std::string& name : names) {
    auto table = std::make_shared<OpenTable>();
    TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<TableWriter> writer,
                              TableWriter::Attach(directory_, config_.token, name));
    table->known_rows = writer->index().known_rows();
    table->writer = std::move(writer);
    TFHYBRID_ASSIGN_OR_RETURN(table->reader, TableReader::Open(directory_, config_.token, name));
    table->posted = table->reader->version();
    table->named = false;
    const MutexLock guard(mutex_);
    tables_[name] = table;
  }
  for (const std::string& name : names) {
    const std::shared_ptr<OpenTable> table = Find(name);
    if (!NeedsAdmission(table->reader->policy())) continue;
    const std::shared_ptr<OpenTable> waiting = Find(WaitingName(name));
    if (waiting == nullptr) {
      return Status::Error(StatusCode::kDataLoss, "Table '", name, "' has no '", WaitingName(name),
                           "' beside it");
    }
    Link(table, waiting);
  }
  return Status::Ok();
}

Result<std::unique_ptr<Store>> Store::Attach(const StoreConfig& config) {
  TFHYBRID_RETURN_IF_ERROR(CheckJob(config.job));
  // Between finding the store and being counted among its processes nobody may take it for dead.
  const HostMutex mutex(HostMutexPath(config.shm_directory));
  TFHYBRID_RETURN_IF_ERROR(mutex.status());
  const std::string directory = StoreDirectory(config.shm_directory, config.job);
  Result<MappedFile> segment = OpenSegment(
      directory + "/store", {SegmentKind::kStore, config.token, 0}, sizeof(SegmentHeader));
  if (!segment.ok()) {
    return Status::Error(
        StatusCode::kNotFound, "This rank (", config.description,
        ") does not see the store of its leader, local rank 0: ", segment.status().message(),
        ". All ranks of a host must share ", config.shm_directory,
        " and run as one user; containers of one rank each do not, unless "
        "they share it (docker run --ipc=host, or one volume)");
  }
  TFHYBRID_ASSIGN_OR_RETURN(
      LivenessLock alive,
      LivenessLock::Acquire(RankPath(directory, config.local_rank), config.description));
  return std::unique_ptr<Store>(new Store(config, directory, std::move(alive), segment.Take()));
}

Store::Store(const StoreConfig& config, std::string directory, LivenessLock alive,
             MappedFile segment)
    : config_(config),
      directory_(std::move(directory)),
      alive_(std::move(alive)),
      segment_(std::move(segment)) {}

Store::~Store() {
  const HostMutex mutex(HostMutexPath(config_.shm_directory));
  alive_.Leave();
  if (!left_behind_ && mutex.status().ok() && LivingProcesses(directory_).empty()) {
    static_cast<void>(RemoveStoreFiles(directory_));
  }
}

std::shared_ptr<OpenTable> Store::Find(const std::string& table_name) const {
  const MutexLock guard(mutex_);
  const auto found = tables_.find(table_name);
  return found == tables_.end() ? nullptr : found->second;
}

TableMap Store::tables() const {
  const MutexLock guard(mutex_);
  return tables_;
}

uint64_t Store::TablesDigest(const OpenTables& updated) const {
  uint64_t hash = 0;
  for (const auto& [name, table] : tables()) {
    // What waits has the version of what it waits for.
    if (table->reader->policy().kind == PolicyKind::kWaiting) continue;
    const bool counts = std::find(updated.begin(), updated.end(), table) != updated.end();
    hash = Mix64(hash ^ TableSeed(0, name.data(), static_cast<int64_t>(name.size())));
    hash = Mix64(hash ^ (table->posted + (counts ? 1 : 0)));
    // States that were kept before an optimizer was replaced do not belong to the tables after it.
    hash = Mix64(hash ^ table->reader->optimizer_start());
  }
  return hash;
}

std::string Store::KeptPath() const {
  return directory_ + "/kept-" + std::to_string(config_.local_rank);
}

Status Store::MakeKept(const std::string& configuration, int64_t bytes) {
  ForgetKept();
  TFHYBRID_ASSIGN_OR_RETURN(KeptState made,
                            KeptState::Create(KeptPath(), config_.token, configuration, bytes));
  const MutexLock guard(mutex_);
  kept_ = std::make_shared<KeptState>(std::move(made));
  return Status::Ok();
}

Status Store::FindKept() {
  TFHYBRID_ASSIGN_OR_RETURN(KeptState found, KeptState::Open(KeptPath(), config_.token));
  const MutexLock guard(mutex_);
  kept_ = std::make_shared<KeptState>(std::move(found));
  return Status::Ok();
}

void Store::ForgetKept() {
  const MutexLock guard(mutex_);
  kept_ = nullptr;
  unlink(KeptPath().c_str());
}

std::shared_ptr<KeptState> Store::kept() const {
  const MutexLock guard(mutex_);
  return kept_;
}

Result<std::shared_ptr<OpenTable>> Store::OpenNamed(const TableConfig& config, int timeout_ms) {
  std::shared_ptr<OpenTable> waiting;
  // First: a new leader finds no table without it.
  if (NeedsAdmission(config.policy)) {
    TFHYBRID_ASSIGN_OR_RETURN(waiting, OpenOne(WaitingConfig(config), nullptr, timeout_ms));
  }
  return OpenOne(config, waiting, timeout_ms);
}

Result<std::shared_ptr<OpenTable>> Store::OpenOne(const TableConfig& config,
                                                  const std::shared_ptr<OpenTable>& waiting,
                                                  int timeout_ms) {
  if (const std::shared_ptr<OpenTable> found = Find(config.name)) {
    if (!found->named) {
      TFHYBRID_RETURN_IF_ERROR(SameShape(*found->reader, config));
      found->named = true;
      return found;
    }
    return Status::Error(StatusCode::kAlreadyExists, "A table named '", config.name,
                         "' is open in this job. Table names are unique within a job: rename one, "
                         "or let two features share a table");
  }
  auto table = std::make_shared<OpenTable>();
  if (is_leader()) {
    TFHYBRID_ASSIGN_OR_RETURN(std::unique_ptr<TableWriter> writer,
                              TableWriter::Create(directory_, config_.token, config));
    table->known_rows = writer->index().known_rows();
    table->writer = std::move(writer);
    TFHYBRID_ASSIGN_OR_RETURN(table->reader,
                              TableReader::Open(directory_, config_.token, config.name));
  } else {
    TFHYBRID_ASSIGN_OR_RETURN(table->reader, WaitForTable(config, timeout_ms));
    TFHYBRID_RETURN_IF_ERROR(SameShape(*table->reader, config));
  }
  table->posted = table->reader->version();
  // Before other threads find it.
  if (waiting != nullptr) Link(table, waiting);
  const MutexLock guard(mutex_);
  tables_[config.name] = table;
  return table;
}

Result<std::unique_ptr<TableReader>> Store::WaitForTable(const TableConfig& config,
                                                         int timeout_ms) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    Result<std::unique_ptr<TableReader>> reader =
        TableReader::Open(directory_, config_.token, config.name);
    if (reader.ok() || reader.status().code() != StatusCode::kNotFound) return reader;
    TFHYBRID_RETURN_IF_ERROR(CheckLeader());
    if (std::chrono::steady_clock::now() > deadline) {
      return Status::Error(StatusCode::kDeadlineExceeded, "The leader did not create table '",
                           config.name, "' within ", timeout_ms / 1000,
                           " s. Do all ranks build the same layers?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kAttachPollMs));
  }
}

Status Store::CheckRank(int local_rank) const {
  if (ended_) return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
  const std::string path = RankPath(directory_, local_rank);
  if (local_rank == config_.local_rank || IsAlive(path)) return Status::Ok();
  return Status::Error(
      StatusCode::kPeerDied, local_rank == 0 ? "The leader of this host " : "A rank of this host ",
      StateOfHolder(path) == HolderState::kLeft ? "has left the job: " : "has died: ",
      DescribeHolder(path), ". Noticed by ", config_.description);
}

RankState Store::StateOf(int local_rank) const {
  const std::string path = RankPath(directory_, local_rank);
  return {StateOfHolder(path), DescribeHolder(path)};
}

}  // namespace tfhybrid
