#include "core/store/table_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/compute/row_update.h"
#include "core/shm/wait_word.h"
#include "core/store/loading_mark.h"
#include "core/store/table_pages.h"
#include "core/util/fault_point.h"
#include "core/util/row_layout.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;
constexpr int kFirstChunkLog2 = 6;
constexpr int64_t kInitialiseCostNs = 100;
constexpr int64_t kNameCostNs = 10;
constexpr int64_t kFindCostNs = 20;
// Below it, decay() is multiplied by its inverse. Powers of two, so that no bit is lost, and far
// enough from the ends of float that embeddings neither overflow nor vanish.
constexpr double kLeastDecay = 0x1p-32;

// A frequency and the step that it is of, stored at once.
using CountWord = uint64_t __attribute__((may_alias));

// What a row begins with in the update that makes it; the update itself then counts.
RowHistory FreshHistory(const TablePage& page) {
  const auto step = static_cast<uint32_t>(page.version() + 1);
  // A waiting key is made and counted at once.
  if (page.policy().kind == PolicyKind::kWaiting) return {1.0f, step, kNoTime};
  return {static_cast<float>(std::max(1u, page.policy().admission) - 1), step, kNoTime};
}

// The largest power of two of rows whose embeddings, or the state of the optimizer with most of it,
// fill one chunk.
int ChunkLog2(int64_t dim) {
  const int64_t row_bytes = std::max<int64_t>(8 + 4 * dim, 4 * dim * 2);
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
  const Status indexed = writer->index_.Restart();
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

Result<std::unique_ptr<TableWriter>> TableWriter::Attach(const std::string& directory,
                                                         uint64_t token,
                                                         const std::string& table_name) {
  TablePaths paths(directory, table_name);
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      OpenSegmentWritable(paths.Table(), {SegmentKind::kTable, token, 0}, sizeof(TableSegment)));
  auto* const segment = reinterpret_cast<TableSegment*>(file.mutable_data());
  TFHYBRID_RETURN_IF_ERROR(CheckTable(paths.Table(), *segment));
  if (segment->counters.loading != 0) {
    return Status::Error(StatusCode::kDataLoss, "Table '", table_name,
                         "' was being loaded when its leader died: its rows are old and new. Load "
                         "it again");
  }
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile tier, OpenTier(paths.Tier(), token, true));
  std::unique_ptr<TableWriter> writer(
      new TableWriter(directory, std::move(file), std::move(tier), std::move(paths)));
  RowChunks& chunks = writer->chunks_;
  TFHYBRID_RETURN_IF_ERROR(chunks.Attach());
  TFHYBRID_RETURN_IF_ERROR(writer->index_.Attach());
  chunks.RemoveUnfinished();
  TFHYBRID_FAULT_POINT();
  writer->index_.RemoveUnfinished();
  TFHYBRID_RETURN_IF_ERROR(writer->removal_.Attach());
  TFHYBRID_RETURN_IF_ERROR(chunks.files().CheckRecords(chunks.Capacity()));
  TFHYBRID_RETURN_IF_ERROR(writer->index_.Complete());
  TFHYBRID_RETURN_IF_ERROR(CheckPages(writer->page_, chunks));
  // Where the dead leader was changing rows, they are settled before the first reader comes.
  if (segment->counters.sequence % 2 != 0) writer->EndChange();
  // A failure was the dead leader's: who waits for the next version shall not read of it.
  __atomic_store_n(&segment->counters.failed, 0, __ATOMIC_RELEASE);
  return writer;
}

TableWriter::TableWriter(const std::string& directory, MappedFile table, MappedFile tier,
                         TablePaths paths)
    : page_(directory, std::move(table), std::move(paths)),
      chunks_(&page_, std::move(tier)),
      snapshots_(&page_, &chunks_),
      index_(&page_, &chunks_),
      removal_(&page_, &chunks_, &index_, &snapshots_) {}

Status TableWriter::SetOptimizer(const OptimizerConfig& config) {
  if (optimizer().kind != OptimizerKind::kNone) {
    if (optimizer() == config) return Status::Ok();
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", name(),
                         "' already has an optimizer, with other settings");
  }
  TFHYBRID_RETURN_IF_ERROR(ValidateOptimizer(config));
  if ((config.flags & kEveryRow) != 0 && policy().kind != PolicyKind::kNone) {
    return Status::Error(
        StatusCode::kInvalidArgument, "Table '", name(),
        "': every row is updated only where rows are neither admitted nor evicted");
  }
  TFHYBRID_RETURN_IF_ERROR(chunks_.files().CheckOptimizer(config));
  // What was made ahead has no room for state.
  DropAhead();
  chunks_.files().Drop();
  TFHYBRID_RETURN_IF_ERROR(chunks_.SetOptimizer(config));
  TableSegment* const segment = page_.segment();
  segment->optimizer = config;
  segment->optimizer.kind = OptimizerKind::kNone;
  segment->optimizer_start = version();
  TFHYBRID_FAULT_POINT();
  // Last: a table that says which optimizer it has, has its numbers and its state.
  StoreRelease(&segment->optimizer.kind, config.kind);
  return Status::Ok();
}

void TableWriter::ForgetOptimizer() {
  if (optimizer().kind == OptimizerKind::kNone) return;
  DropAhead();                 // has room for state
  snapshots_.ForgetChanges();  // the state of every row changes
  TableSegment* const segment = page_.segment();
  // First: state without an optimizer is damage, unless the table says this.
  StoreRelease(&segment->optimizer_start, kReplaced);
  TFHYBRID_FAULT_POINT();
  StoreRelease(&segment->optimizer.kind, OptimizerKind::kNone);
  TFHYBRID_FAULT_POINT();
  chunks_.DropState();
}

void TableWriter::Find(Span<const int64_t> keys, RowSet* set,
                       const ParallelFor& parallel_for) const {
  set->rows.resize(static_cast<size_t>(keys.size()));
  set->missing.clear();
  const Span<int64_t> rows(set->rows);
  parallel_for(keys.size(), kFindCostNs, [&](int64_t begin, int64_t end) {
    index_.FindBatch(keys.subspan(begin, end - begin), rows.subspan(begin, end - begin));
  });
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (set->rows[static_cast<size_t>(i)] == KeyIndex::kMissing) set->missing.push_back(i);
  }
}

Status TableWriter::Reserve(int64_t rows) {
  TFHYBRID_RETURN_IF_ERROR(chunks_.Reserve(rows));
  return index_.Reserve(rows);
}

int64_t TableWriter::Room() const {
  const int64_t room = std::min(chunks_.Capacity(), index_.Room()) - rows();
  return waiting_ == nullptr ? room : std::min(room, waiting_->Room());
}

void TableWriter::StartRows(Span<const int64_t> keys, const RowSet& set, int64_t first,
                            int64_t begin, int64_t end, RowStart start) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t key = keys[set.missing[static_cast<size_t>(i)]];
    const TableRow row = chunks_.Row(first + i);
    // Another row may have lain here.
    if (policy().kind != PolicyKind::kNone) snapshots_.BeforeChange(first + i, row);
    chunks_.SetKey(first + i, key);
    if (start == RowStart::kInitial) {
      FreshEmbedding(key, Span<float>(row.embedding, row.dim));
      InitializeState(optimizer(), row.dim, row.state);
    }
    if (row.history != nullptr) *row.history = FreshHistory(page_);
  }
}

void TableWriter::FreshEmbedding(int64_t key, Span<float> embedding) const {
  const TableShape& shape = page_.shape();
  InitializeRow(InitializerOf(shape), shape.seed, key, embedding);
  ScaleRow(static_cast<float>(page_.initial_decay()), dim(), embedding.data());
}

void TableWriter::AddRows(int64_t count) {
  TableCounters& counters = page_.counters();
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&counters.rows, static_cast<uint64_t>(rows() + count), __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  // Who loads can wait for what is needed, and may have no memory for more.
  if (counters.loading != 0) return;
  chunks_.GrowAhead(count);
  index_.GrowAhead(count);
}

void TableWriter::Index(Span<const int64_t> keys, int64_t first, RowSet* set) {
  const auto position = [set](int64_t i) { return set->missing[static_cast<size_t>(i)]; };
  index_.Insert(
      static_cast<int64_t>(set->missing.size()), first,
      [&](int64_t i) { return keys[position(i)]; },
      [&](int64_t i) {
        set->rows[static_cast<size_t>(position(i))] = first + i;
        TFHYBRID_FAULT_POINT();
      });
}

Status TableWriter::CreateMissing(Span<const int64_t> keys, RowSet* set, RowStart start,
                                  const ParallelFor& parallel_for) {
  Find(keys, set, parallel_for);
  const auto count = static_cast<int64_t>(set->missing.size());
  const int64_t first = rows();
  TFHYBRID_RETURN_IF_ERROR(Reserve(first + count));
  if (chunks_.files().used()) {
    std::vector<int64_t> brought;
    for (const int64_t row : set->rows) {
      if (row != KeyIndex::kMissing) brought.push_back(row);
    }
    for (int64_t i = 0; i < count; ++i) brought.push_back(first + i);
    TFHYBRID_RETURN_IF_ERROR(chunks_.files().Bring(brought, parallel_for));
  }
  parallel_for(
      count, start == RowStart::kInitial ? kInitialiseCostNs : kNameCostNs,
      [&](int64_t begin, int64_t end) { StartRows(keys, *set, first, begin, end, start); });
  AddRows(count);
  Index(keys, first, set);
  return Status::Ok();
}

void TableWriter::CountWaiting(Span<const int64_t> keys, uint64_t step) {
  RowSet set;
  // Room is reserved.
  const Status made = CreateMissing(keys, &set, RowStart::kInitial, RunInline);
  assert(made.ok());
  static_cast<void>(made);
  for (const int64_t number : set.rows) {
    const TableRow row = chunks_.Row(number);
    const RowHistory next = {CountWith(*row.history, step), static_cast<uint32_t>(step), kNoTime};
    snapshots_.BeforeChange(number, row);
    CountWord word;
    std::memcpy(&word, &next, sizeof(word));
    // At once, so that a leader which is killed has counted it or has not.
    __atomic_store_n(reinterpret_cast<CountWord*>(row.history), word, __ATOMIC_RELEASE);
    TFHYBRID_FAULT_POINT();
  }
}

void TableWriter::PublishVersion(uint64_t version) {
  PublishWord(&page_.counters().version, version);
}

void TableWriter::PublishUpdate(uint64_t version, double decay, float clip_factor,
                                int64_t event_time) {
  TableCounters& counters = page_.counters();
  StoreRelease(&counters.event_time, event_time);
  StoreRelease(&counters.decay, decay);
  StoreRelease(&counters.clip_factor, clip_factor);
  TFHYBRID_FAULT_POINT();
  PublishVersion(version);
}

void TableWriter::PublishFailure(const Status& why) {
  TableCounters& counters = page_.counters();
  std::strncpy(counters.failure, why.message().c_str(), kMaxFailure - 1);
  // Release: whoever sees the code sees the message.
  __atomic_store_n(&counters.failed, static_cast<uint64_t>(why.code()), __ATOMIC_RELEASE);
  PublishWord(&counters.version, version());  // wakes the waiting, with the version they know
  if (waiting_ != nullptr) waiting_->PublishFailure(why);
}

void TableWriter::ScaleRows(int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    ScaleRow(static_cast<float>(kLeastDecay), dim(), chunks_.Row(row).embedding);
  }
}

// As many at a time as the cache holds. A block that cannot be brought is as it was.
Status TableWriter::ScaleFileRows(const ParallelFor& parallel_for) {
  std::vector<int64_t> block;
  FileRows& files = chunks_.files();
  while (normalized_ < rows()) {
    const int64_t end = std::min(rows(), normalized_ + files.slots());
    block.resize(static_cast<size_t>(end - normalized_));
    std::iota(block.begin(), block.end(), normalized_);
    TFHYBRID_RETURN_IF_ERROR(files.Bring(block, parallel_for));
    parallel_for(end - normalized_, dim(), [&](int64_t first, int64_t last) {
      ScaleRows(normalized_ + first, normalized_ + last);
    });
    normalized_ = end;
  }
  normalized_ = 0;
  return Status::Ok();
}

Status TableWriter::NormalizeDecay(const ParallelFor& parallel_for) {
  if (page_.decay() >= kLeastDecay || snapshots_.frozen() != nullptr) return Status::Ok();
  // A leader that is killed here leaves rows that nobody can tell apart.
  LoadingMark mark(page_.segment());
  if (chunks_.files().used()) {
    const Status scaled = ScaleFileRows(parallel_for);
    if (!scaled.ok()) {
      if (normalized_ > 0) mark.Leave();
      return scaled;
    }
  } else {
    parallel_for(rows(), dim(), [&](int64_t begin, int64_t end) { ScaleRows(begin, end); });
  }
  TFHYBRID_FAULT_POINT();
  StoreRelease(&page_.counters().decay, page_.decay() / kLeastDecay);
  StoreRelease(&page_.counters().initial_decay, page_.initial_decay() * kLeastDecay);
  return Status::Ok();
}

Status TableWriter::ReadKeys(Span<const int64_t> keys, float* states, RowHistory* histories) const {
  RowSet set;
  Find(keys, &set);
  const int64_t state_floats = chunks_.state_floats();
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t row = set.rows[static_cast<size_t>(i)];
    if (row == KeyIndex::kMissing) continue;
    if (states != nullptr) {
      TFHYBRID_RETURN_IF_ERROR(chunks_.ReadState(row, 1, states + i * state_floats));
    }
    if (histories != nullptr) TFHYBRID_RETURN_IF_ERROR(chunks_.ReadHistory(row, 1, histories + i));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
