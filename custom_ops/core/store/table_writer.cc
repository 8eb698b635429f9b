#include "core/store/table_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/compute/row_update.h"
#include "core/shm/wait_word.h"
#include "core/store/loading_mark.h"
#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"
#include "core/util/row_layout.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;
constexpr int kFirstChunkLog2 = 6;
constexpr int64_t kFirstIndexSlots = 128;
constexpr int64_t kInitialiseCostNs = 100;
constexpr int64_t kNameCostNs = 10;
constexpr int64_t kFindCostNs = 20;
// Loaded at a time: what finds equal keys then fits into a core's second cache.
constexpr int64_t kLoadedKeys = 16384;
// Below it, decay() is multiplied by its inverse. Powers of two, so that no bit is lost, and far
// enough from the ends of float that embeddings neither overflow nor vanish.
constexpr double kLeastDecay = 0x1p-32;

// The largest power of two of rows whose embeddings, or the state of the optimizer with most of it,
// fill one chunk.
int ChunkLog2(int64_t dim) {
  const int64_t row_bytes = std::max<int64_t>(8 + 4 * dim, 2 * 4 * dim);
  int log2 = kFirstChunkLog2;
  while ((row_bytes << (log2 + 1)) <= kMaxChunkBytes) ++log2;
  return log2;
}

Status CheckFiles(const TableConfig& config) {
  if (config.files.empty()) return Status::Ok();
  if (config.policy.min_norm > 0.0) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "' lies in files: rows cannot be evicted by min_norm, for that would read "
                         "them from the disk. Received: min_norm=",
                         config.policy.min_norm);
  }
  if (config.files[0] != '/' || config.files.size() >= kMaxFilesPath || config.cache_bytes < 1) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "': FileTier wants an absolute path of less than ", kMaxFilesPath,
                         " bytes, and a cache. Received: path='", config.files,
                         "', cache_bytes=", config.cache_bytes);
  }
  return Status::Ok();
}

Status CheckConfig(const TableConfig& config) {
  if (config.name.empty() || config.name.size() > kMaxTableName ||
      config.name.find('\0') != std::string::npos) {
    return Status::Error(StatusCode::kInvalidArgument, "A table's name has 1 to ", kMaxTableName,
                         " bytes and no zero among them. Received: '", config.name, "'");
  }
  if (config.dim < 1 || config.dim > kMaxDim) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name,
                         "': dim lies between 1 and ", kMaxDim, ". Received: ", config.dim);
  }
  TFHYBRID_RETURN_IF_ERROR(ValidatePolicy(config.policy));
  TFHYBRID_RETURN_IF_ERROR(CheckFiles(config));
  return ValidateInitializer(config.initializer);
}

TableShape ShapeOf(const TableConfig& config) {
  TableShape shape = {};
  std::memcpy(shape.name, config.name.data(), config.name.size());
  shape.seed =
      TableSeed(config.job_seed, config.name.data(), static_cast<int64_t>(config.name.size()));
  shape.initializer = static_cast<uint32_t>(config.initializer.kind);
  shape.initializer_a = config.initializer.a;
  shape.initializer_b = config.initializer.b;
  shape.dim = static_cast<uint32_t>(config.dim);
  shape.first_chunk_log2 = kFirstChunkLog2;
  shape.chunk_log2 = static_cast<uint32_t>(ChunkLog2(config.dim));
  shape.policy = config.policy;
  shape.shard = config.shard;
  return shape;
}

}  // namespace

Result<std::unique_ptr<TableWriter>> TableWriter::Create(const std::string& directory,
                                                         uint64_t token,
                                                         const TableConfig& config) {
  TFHYBRID_RETURN_IF_ERROR(CheckConfig(config));
  TablePaths paths(directory, config.name);
  if (access(paths.Table().c_str(), F_OK) == 0) {
    return Status::Error(
        StatusCode::kAlreadyExists, "A table named '", config.name,
        "' exists in this job. Table names are unique within a job: rename one, or "
        "let two features share a table");
  }
  // Under a temporary name until it is complete, because other ranks wait for the final name to
  // appear.
  const std::string temporary = paths.Table() + ".new";
  unlink(temporary.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            CreateSegment(temporary, {SegmentKind::kTable, token, 0},
                                          sizeof(TableSegment), "table '" + config.name + "'"));
  auto* segment = reinterpret_cast<TableSegment*>(file.mutable_data());
  segment->shape = ShapeOf(config);
  segment->counters.decay = 1.0;
  segment->counters.initial_decay = 1.0;
  segment->counters.clip_factor = 1.0f;
  segment->counters.event_time = kNoTime;
  SealTable(segment);
  const std::string final_path = paths.Table();
  MappedFile tier;
  if (!config.files.empty()) {
    TierShape tier_shape = {};
    std::memcpy(tier_shape.files, config.files.data(), config.files.size());
    tier_shape.cache_bytes = static_cast<uint64_t>(config.cache_bytes);
    Result<MappedFile> made = CreateTier(directory, token, config.name, tier_shape);
    if (!made.ok()) {
      unlink(temporary.c_str());
      return made.status();
    }
    tier = made.Take();
  }
  std::unique_ptr<TableWriter> writer(
      new TableWriter(directory, std::move(file), std::move(tier), std::move(paths)));
  const Status indexed = writer->BuildIndex(kFirstIndexSlots);
  if (!indexed.ok()) {
    unlink(temporary.c_str());
    return indexed;
  }
  TFHYBRID_FAULT_POINT();
  if (rename(temporary.c_str(), final_path.c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return writer;
}

TableWriter::TableWriter(const std::string& directory, MappedFile table, MappedFile tier,
                         TablePaths paths)
    : directory_(directory),
      table_(std::move(table)),
      tier_(std::move(tier)),
      paths_(std::move(paths)),
      locator_(LocatorOf(reinterpret_cast<const TableSegment*>(table_.data())->shape)),
      dim_(reinterpret_cast<const TableSegment*>(table_.data())->shape.dim) {}

std::string TableWriter::name() const {
  return std::string(table()->shape.name, strnlen(table()->shape.name, kMaxTableName));
}

void TableWriter::Find(Span<const int64_t> keys, RowSet* set) const {
  FindOn(keys, set, RunInline);
}

void TableWriter::FindOn(Span<const int64_t> keys, RowSet* set,
                         const ParallelFor& parallel_for) const {
  set->rows.resize(static_cast<size_t>(keys.size()));
  set->missing.clear();
  const Span<int64_t> rows(set->rows);
  parallel_for(keys.size(), kFindCostNs, [&](int64_t begin, int64_t end) {
    FindRows(keys.subspan(begin, end - begin), rows.subspan(begin, end - begin));
  });
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (set->rows[static_cast<size_t>(i)] == KeyIndex::kMissing) set->missing.push_back(i);
  }
}

void TableWriter::StartRows(Span<const int64_t> keys, const RowSet& set, int64_t first,
                            int64_t begin, int64_t end, RowStart start) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t key = keys[set.missing[static_cast<size_t>(i)]];
    const RowLocator::ChunkOffset at = locator_.Locate(first + i);
    const TableRow row = Row(first + i);
    // Another row may have lain here.
    if (policy().kind != PolicyKind::kNone) BeforeChange(first + i, row);
    // Atomic for the index that is made in the background.
    __atomic_store_n(&chunks_[static_cast<size_t>(at.chunk)].keys[at.offset], key,
                     __ATOMIC_RELAXED);
    if (start == RowStart::kInitial) {
      FreshEmbedding(key, Span<float>(row.embedding, dim()));
      InitializeState(optimizer_, dim(), row.state);
    }
    if (row.history != nullptr) *row.history = FreshHistory();
  }
}

void TableWriter::FreshEmbedding(int64_t key, Span<float> embedding) const {
  const TableShape& shape = table()->shape;
  InitializeRow(InitializerOf(shape), shape.seed, key, embedding);
  ScaleRow(static_cast<float>(initial_decay()), dim(), embedding.data());
}

void TableWriter::AddRows(int64_t count) {
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&table()->counters.rows, static_cast<uint64_t>(rows() + count),
                   __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  GrowAhead(count);
}

void TableWriter::Index(Span<const int64_t> keys, int64_t first, RowSet* set) {
  const auto position = [set](int64_t i) { return set->missing[static_cast<size_t>(i)]; };
  index_freed_ += index_.InsertBatch(
      static_cast<int64_t>(set->missing.size()), first,
      [&](int64_t i) { return keys[position(i)]; },
      [&](int64_t i) {
        if (!index_ahead_notes_.empty()) NoteForIndexAhead(keys[position(i)]);
        set->rows[static_cast<size_t>(position(i))] = first + i;
        TFHYBRID_FAULT_POINT();
      });
}

Status TableWriter::CreateMissing(Span<const int64_t> keys, RowSet* set, RowStart start,
                                  const ParallelFor& parallel_for) {
  FindOn(keys, set, parallel_for);
  const auto count = static_cast<int64_t>(set->missing.size());
  const int64_t first = rows();
  TFHYBRID_RETURN_IF_ERROR(Reserve(first + count));
  if (in_files()) {
    std::vector<int64_t> brought;
    for (const int64_t row : set->rows) {
      if (row != KeyIndex::kMissing) brought.push_back(row);
    }
    for (int64_t i = 0; i < count; ++i) brought.push_back(first + i);
    TFHYBRID_RETURN_IF_ERROR(Bring(brought, parallel_for));
  }
  parallel_for(
      count, start == RowStart::kInitial ? kInitialiseCostNs : kNameCostNs,
      [&](int64_t begin, int64_t end) { StartRows(keys, *set, first, begin, end, start); });
  AddRows(count);
  Index(keys, first, set);
  return Status::Ok();
}

void TableWriter::PublishVersion(uint64_t version) {
  PublishWord(&table()->counters.version, version);
}

void TableWriter::PublishUpdate(uint64_t version, double decay, float clip_factor,
                                int64_t event_time) {
  StoreRelease(&table()->counters.event_time, event_time);
  StoreRelease(&table()->counters.decay, decay);
  StoreRelease(&table()->counters.clip_factor, clip_factor);
  TFHYBRID_FAULT_POINT();
  PublishVersion(version);
}

void TableWriter::ScaleRows(int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    ScaleRow(static_cast<float>(kLeastDecay), dim(), Row(row).embedding);
  }
}

Status TableWriter::NormalizeDecay(const ParallelFor& parallel_for) {
  if (decay() >= kLeastDecay || frozen_ != nullptr) return Status::Ok();
  // A leader that is killed here leaves rows that nobody can tell apart.
  LoadingMark mark(table());
  if (in_files()) {
    const Status scaled = NormalizeFileRows(parallel_for);
    if (!scaled.ok()) {
      if (normalized_ > 0) mark.Leave();
      return scaled;
    }
  } else {
    parallel_for(rows(), dim(), [&](int64_t begin, int64_t end) { ScaleRows(begin, end); });
  }
  TFHYBRID_FAULT_POINT();
  StoreRelease(&table()->counters.decay, decay() / kLeastDecay);
  StoreRelease(&table()->counters.initial_decay, initial_decay() * kLeastDecay);
  return Status::Ok();
}

void TableWriter::SetInitialDecay(double decay) {
  StoreRelease(&table()->counters.decay, 1.0);
  StoreRelease(&table()->counters.initial_decay, decay);
}

void TableWriter::SetEventTime(int64_t time) { StoreRelease(&table()->counters.event_time, time); }

void TableWriter::PublishFailure(const Status& why) {
  TableCounters& counters = table()->counters;
  std::strncpy(counters.failure, why.message().c_str(), kMaxFailure - 1);
  // Release: whoever sees the code sees the message.
  __atomic_store_n(&counters.failed, static_cast<uint64_t>(why.code()), __ATOMIC_RELEASE);
  PublishWord(&counters.version, version());  // wakes the waiting, with the version they know
  if (waiting_ != nullptr) waiting_->PublishFailure(why);
}

Status TableWriter::WriteRows(Span<const int64_t> keys, const float* embeddings,
                              const float* states, const RowHistory* histories,
                              const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(CheckNotFrozen());
  cursors_.Forget();
  const LoadingMark mark(table());
  // Nor more at a time than the cache of a table in files holds.
  const int64_t max_keys =
      in_files() ? std::clamp<int64_t>(CacheRows(), 1, kLoadedKeys) : kLoadedKeys;
  WriteScratch scratch;
  for (int64_t first = 0; first < keys.size(); first += max_keys) {
    const int64_t count = std::min(max_keys, keys.size() - first);
    TFHYBRID_RETURN_IF_ERROR(
        WriteBlock(keys.subspan(first, count), embeddings + first * dim_,
                   states == nullptr ? nullptr : states + first * state_floats_,
                   histories == nullptr ? nullptr : histories + first, parallel_for, &scratch));
  }
  return Status::Ok();
}

Status TableWriter::WriteBlock(Span<const int64_t> keys, const float* embeddings,
                               const float* states, const RowHistory* histories,
                               const ParallelFor& parallel_for, WriteScratch* scratch) {
  UniqueKeys& unique = scratch->unique;
  std::vector<int64_t>& sources = scratch->sources;
  RowSet& set = scratch->set;
  unique.Reset(keys.size());
  sources.resize(static_cast<size_t>(keys.size()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    sources[static_cast<size_t>(unique.Number(keys[i]))] = i;
  }
  TFHYBRID_RETURN_IF_ERROR(CreateMissing(unique.keys(), &set, RowStart::kBlank, parallel_for));
  const auto decay = static_cast<float>(this->decay());
  const RowHistory now = {static_cast<float>(std::max(1u, policy().admission)),
                          static_cast<uint32_t>(version()), event_time()};
  parallel_for(unique.size(), dim(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const TableRow row = Row(set.rows[static_cast<size_t>(i)]);
      const int64_t source = sources[static_cast<size_t>(i)];
      CopyFloats(embeddings + source * row.dim, row.dim, row.embedding);
      ScaleRow(1.0f / decay, row.dim, row.embedding);
      TFHYBRID_FAULT_POINT();
      if (states == nullptr) {
        InitializeState(optimizer_, row.dim, row.state);
      } else {
        CopyFloats(states + source * row.state_floats, row.state_floats, row.state);
      }
      if (row.history != nullptr) *row.history = histories != nullptr ? histories[source] : now;
    }
  });
  return Status::Ok();
}

Status TableWriter::Clear() {
  TFHYBRID_RETURN_IF_ERROR(CheckNotFrozen());
  cursors_.Forget();
  const LoadingMark mark(table());
  DropAhead();
  const uint64_t rows_before = table()->counters.rows;
  __atomic_store_n(&table()->counters.rows, 0, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  const Status built = BuildIndex(kFirstIndexSlots);
  if (!built.ok()) {
    __atomic_store_n(&table()->counters.rows, rows_before, __ATOMIC_RELEASE);
    return built;
  }
  DropTier();
  __atomic_store_n(&table()->counters.failed, 0, __ATOMIC_RELEASE);
  SetInitialDecay(1.0);
  SetEventTime(kNoTime);
  return Status::Ok();
}

Result<std::shared_ptr<FrozenTable>> TableWriter::Freeze(const std::string& cursor,
                                                         bool only_changed) {
  TFHYBRID_RETURN_IF_ERROR(CheckNotFrozen());
  std::vector<FrozenTable::ChunkData> sources;
  for (const MappedChunk& chunk : chunks_) {
    sources.push_back(
        {chunk.keys, chunk.embeddings, chunk.states, chunk.histories, chunk.addresses});
  }
  // Decay changes all rows at every step.
  const Changes* const changes = cursors_.Find(cursor);
  const bool partly = changes != nullptr && only_changed && optimizer_.weight_decay == 0.0;
  const FrozenTable::Snapshot snapshot = {rows(), version(), decay(), initial_decay(),
                                          event_time()};
  frozen_ = std::make_shared<FrozenTable>(snapshot, locator_, dim_, state_floats_, sources,
                                          row_tier_, partly ? changes->rows.get() : nullptr,
                                          partly ? changes->removed : std::vector<int64_t>());
  taken_from_ = cursor;
  taken_ = cursors_.Take(cursor, rows());
  return frozen_;
}

void TableWriter::ReturnChanges() {
  cursors_.Return(taken_from_, std::move(taken_));
  taken_ = {};
}

Status TableWriter::CheckNotFrozen() const {
  if (frozen_ == nullptr) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition, "Table '", name(),
                       "' is being saved: wait until its checkpoint is complete");
}

Status TableWriter::CheckRange(int64_t first, int64_t count) const {
  if (first >= 0 && count >= 0 && count <= rows() - first) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "Table '", name(), "' has ", rows(),
                       " rows. Received: first=", first, ", count=", count);
}

Status TableWriter::ReadStateOf(int64_t row, float* record, float* state) const {
  if (!in_files()) {
    CopyFloats(Row(row).state, state_floats_, state);
    return Status::Ok();
  }
  TFHYBRID_RETURN_IF_ERROR(row_tier_->Read(AddressAtRow(row), record));
  CopyFloats(record + dim_, state_floats_, state);
  return Status::Ok();
}

Status TableWriter::ReadKeys(Span<const int64_t> keys, float* states, RowHistory* histories) const {
  RowSet set;
  Find(keys, &set);
  std::vector<float> record(static_cast<size_t>(RecordFloats()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t row = set.rows[static_cast<size_t>(i)];
    if (row == KeyIndex::kMissing) continue;
    if (states != nullptr && state_floats_ > 0) {
      TFHYBRID_RETURN_IF_ERROR(ReadStateOf(row, record.data(), states + i * state_floats_));
    }
    if (histories != nullptr && policy().kind != PolicyKind::kNone) {
      TFHYBRID_RETURN_IF_ERROR(ReadHistory(row, 1, histories + i));
    }
  }
  return Status::Ok();
}

Status TableWriter::ReadState(int64_t first, int64_t count, float* states) const {
  TFHYBRID_RETURN_IF_ERROR(CheckRange(first, count));
  const int64_t width = StateFloats();
  std::vector<float> record(static_cast<size_t>(RecordFloats()));
  for (int64_t i = 0; width > 0 && i < count; ++i) {
    TFHYBRID_RETURN_IF_ERROR(ReadStateOf(first + i, record.data(), states + i * width));
  }
  return Status::Ok();
}

Status TableWriter::ReadHistory(int64_t first, int64_t count, RowHistory* histories) const {
  TFHYBRID_RETURN_IF_ERROR(CheckRange(first, count));
  for (int64_t i = 0; policy().kind != PolicyKind::kNone && i < count; ++i) {
    const RowLocator::ChunkOffset at = locator_.Locate(first + i);
    histories[i] = chunks_[static_cast<size_t>(at.chunk)].histories[at.offset];
  }
  return Status::Ok();
}

}  // namespace tfhybrid
