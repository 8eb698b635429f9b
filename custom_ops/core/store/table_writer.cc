#include "core/store/table_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/shm/wait_word.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;
constexpr int64_t kMaxDim = int64_t{1} << 16;
constexpr int kFirstChunkLog2 = 6;
constexpr int64_t kFirstIndexSlots = 128;
// How far ahead of the row in hand the next ones are fetched when an optimizer runs.
constexpr int64_t kPrefetchDistance = 8;
constexpr int64_t kInitialiseCostNs = 100;

// The largest power of two of rows whose embeddings, or the state of the optimizer with most of it,
// fill one chunk.
int ChunkLog2(int64_t dim) {
  const int64_t row_bytes = std::max<int64_t>(8 + 4 * dim, 2 * 4 * dim);
  int log2 = kFirstChunkLog2;
  while ((row_bytes << (log2 + 1)) <= kMaxChunkBytes) ++log2;
  return log2;
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
  return shape;
}

bool SameOptimizer(const OptimizerConfig& a, const OptimizerConfig& b) {
  return a.kind == b.kind && a.initial_accumulator_value == b.initial_accumulator_value &&
         a.beta_1 == b.beta_1 && a.beta_2 == b.beta_2 && a.epsilon == b.epsilon;
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
  SealTable(segment);
  const std::string final_path = paths.Table();
  std::unique_ptr<TableWriter> writer(new TableWriter(std::move(file), std::move(paths)));
  const Status indexed = writer->BuildIndex(kFirstIndexSlots);
  if (!indexed.ok()) {
    unlink(temporary.c_str());
    return indexed;
  }
  if (rename(temporary.c_str(), final_path.c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return writer;
}

TableWriter::TableWriter(MappedFile table, TablePaths paths)
    : table_(std::move(table)),
      paths_(std::move(paths)),
      locator_(LocatorOf(reinterpret_cast<const TableSegment*>(table_.data())->shape)) {}

std::string TableWriter::name() const {
  return std::string(table()->shape.name, strnlen(table()->shape.name, kMaxTableName));
}

Status TableWriter::SetOptimizer(const OptimizerConfig& config) {
  if (optimizer_.kind != OptimizerKind::kNone) {
    if (SameOptimizer(optimizer_, config)) return Status::Ok();
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", name(),
                         "' already has an optimizer, with other settings. A table is updated by "
                         "one optimizer for its whole life");
  }
  TFHYBRID_RETURN_IF_ERROR(ValidateOptimizer(config));
  optimizer_ = config;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const Status added = AddState(static_cast<int64_t>(chunk), &chunks_[chunk]);
    if (!added.ok()) {
      for (size_t made = 0; made < chunk; ++made) {
        chunks_[made].state = MappedFile();
        unlink(paths_.State(static_cast<int64_t>(made)).c_str());
      }
      optimizer_ = OptimizerConfig();
      return added;
    }
  }
  for (int64_t row = 0; row < rows(); ++row) InitializeState(optimizer_, dim(), StateAt(row));
  table()->optimizer = {static_cast<uint32_t>(config.kind),
                        config.initial_accumulator_value,
                        config.epsilon,
                        0,
                        config.beta_1,
                        config.beta_2};
  return Status::Ok();
}

Status TableWriter::Prepare(Span<const int64_t> keys, RowSet* set) {
  set->rows.resize(static_cast<size_t>(keys.size()));
  set->missing.clear();
  index_.FindBatch(keys, Span<int64_t>(set->rows));
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (set->rows[static_cast<size_t>(i)] == KeyIndex::kMissing) set->missing.push_back(i);
  }
  return Reserve(rows() + static_cast<int64_t>(set->missing.size()));
}

Status TableWriter::Reserve(int64_t rows) {
  TFHYBRID_RETURN_IF_ERROR(ReserveRows(rows));
  return ReserveIndex(rows);
}

Status TableWriter::ReserveRows(int64_t rows) {
  while (locator_.Capacity(static_cast<int64_t>(chunks_.size())) < rows) {
    TFHYBRID_RETURN_IF_ERROR(AddChunk());
  }
  return Status::Ok();
}

Status TableWriter::AddChunk() {
  const auto number = static_cast<int64_t>(chunks_.size());
  const int64_t rows = locator_.ChunkRows(number);
  const int64_t first = locator_.Capacity(number);
  const std::string purpose = "table '" + name() + "', rows " + std::to_string(first) + " to " +
                              std::to_string(first + rows - 1);
  const SegmentIdentity identity = {SegmentKind::kRows, table()->header.token,
                                    static_cast<uint64_t>(number)};
  Chunk chunk = {};
  TFHYBRID_ASSIGN_OR_RETURN(chunk.rows, CreateSegment(paths_.Rows(number), identity,
                                                      RowChunkBytes(rows, dim()), purpose));
  auto* header = reinterpret_cast<ChunkSegment*>(chunk.rows.mutable_data());
  header->rows = static_cast<uint64_t>(rows);
  header->row_floats = static_cast<uint64_t>(dim());
  chunk.keys = reinterpret_cast<int64_t*>(chunk.rows.mutable_data() + kPageBytes);
  chunk.embeddings = reinterpret_cast<float*>(chunk.rows.mutable_data() + EmbeddingsOffset(rows));
  const Status state = AddState(number, &chunk);
  if (!state.ok()) {
    unlink(paths_.Rows(number).c_str());
    return state;
  }
  chunks_.push_back(std::move(chunk));
  __atomic_store_n(&table()->counters.chunks, chunks_.size(), __ATOMIC_RELEASE);
  return Status::Ok();
}

Status TableWriter::AddState(int64_t number, Chunk* chunk) {
  if (StateFloats() == 0) return Status::Ok();
  const int64_t rows = locator_.ChunkRows(number);
  const std::string purpose =
      "table '" + name() + "', optimizer state of " + std::to_string(rows) + " rows";
  const SegmentIdentity identity = {SegmentKind::kState, table()->header.token,
                                    static_cast<uint64_t>(number)};
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk->state,
      CreateSegment(paths_.State(number), identity, StateChunkBytes(rows, StateFloats()), purpose));
  auto* header = reinterpret_cast<ChunkSegment*>(chunk->state.mutable_data());
  header->rows = static_cast<uint64_t>(rows);
  header->row_floats = static_cast<uint64_t>(StateFloats());
  chunk->states = reinterpret_cast<float*>(chunk->state.mutable_data() + kPageBytes);
  return Status::Ok();
}

Status TableWriter::ReserveIndex(int64_t keys) {
  const int64_t slots = SlotsOf(index_file_).size();
  if (keys <= KeyIndex::MaxKeys(slots)) return Status::Ok();
  return BuildIndex(std::max(KeyIndex::SlotsFor(keys), 2 * slots));
}

Status TableWriter::BuildIndex(int64_t slots) {
  const uint64_t generation = table()->counters.index_generation + 1;
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      CreateSegment(paths_.Index(generation),
                    {SegmentKind::kIndex, table()->header.token, generation}, IndexBytes(slots),
                    "table '" + name() + "', index of " + std::to_string(slots) + " slots"));
  reinterpret_cast<IndexSegment*>(file.mutable_data())->slots = static_cast<uint64_t>(slots);
  KeyIndex index(SlotsOf(file));
  // From the rows, which lie in order, and not from the old index, which does not.
  for (int64_t row = 0, chunk = 0; row < rows(); ++chunk) {
    const int64_t count = std::min(locator_.ChunkRows(chunk), rows() - row);
    const int64_t* keys = chunks_[static_cast<size_t>(chunk)].keys;
    for (int64_t i = 0; i < count; ++i, ++row) {
      if (i + kPrefetchDistance < count) index.Prefetch(keys[i + kPrefetchDistance]);
      index.Insert(keys[i], row);
    }
  }
  __atomic_store_n(&table()->counters.index_generation, generation, __ATOMIC_RELEASE);
  if (generation > 1) unlink(paths_.Index(generation - 1).c_str());
  index_file_ = std::move(file);
  index_ = index;
  return Status::Ok();
}

void TableWriter::InitialiseRows(Span<const int64_t> keys, const RowSet& set, int64_t begin,
                                 int64_t end) {
  const TableShape& shape = table()->shape;
  const Initializer initializer = {static_cast<InitializerKind>(shape.initializer),
                                   shape.initializer_a, shape.initializer_b};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t position = set.missing[static_cast<size_t>(i)];
    const int64_t row = rows() + i;
    const RowLocator::Place place = locator_.Locate(row);
    chunks_[static_cast<size_t>(place.chunk)].keys[place.offset] = keys[position];
    InitializeRow(initializer, shape.seed, keys[position], Span<float>(EmbeddingAt(row), dim()));
    InitializeState(optimizer_, dim(), StateAt(row));
  }
}

void TableWriter::CreateRows(Span<const int64_t> keys, RowSet* set,
                             const ParallelFor& parallel_for) {
  const auto count = static_cast<int64_t>(set->missing.size());
  if (count == 0) return;
  parallel_for(count, kInitialiseCostNs,
               [&](int64_t begin, int64_t end) { InitialiseRows(keys, *set, begin, end); });
  const int64_t first = rows();
  __atomic_store_n(&table()->counters.rows, static_cast<uint64_t>(first + count), __ATOMIC_RELEASE);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kPrefetchDistance < count) {
      index_.Prefetch(keys[set->missing[static_cast<size_t>(i + kPrefetchDistance)]]);
    }
    const int64_t position = set->missing[static_cast<size_t>(i)];
    index_.Insert(keys[position], first + i);
    set->rows[static_cast<size_t>(position)] = first + i;
  }
}

void TableWriter::Apply(const OptimizerStep& step, const RowSet& set, const float* gradients,
                        const float* scales, int64_t begin, int64_t end) {
  const int64_t width = dim();
  for (int64_t i = begin; i < end; ++i) {
    if (i + kPrefetchDistance < end) {
      const int64_t ahead = set.rows[static_cast<size_t>(i + kPrefetchDistance)];
      __builtin_prefetch(EmbeddingAt(ahead), 1);
      if (StateFloats() > 0) __builtin_prefetch(StateAt(ahead), 1);
    }
    const int64_t row = set.rows[static_cast<size_t>(i)];
    ApplyRow(step, width, gradients + i * width, scales[i], EmbeddingAt(row), StateAt(row));
  }
}

void TableWriter::Publish() { PublishWord(&table()->counters.version, version() + 1); }

void TableWriter::SetVersion(uint64_t version) { PublishWord(&table()->counters.version, version); }

void TableWriter::PublishFailure(const std::string& message) {
  TableCounters& counters = table()->counters;
  std::strncpy(counters.failure, message.c_str(), kMaxFailure - 1);
  // Release: whoever sees the flag sees the message.
  __atomic_store_n(&counters.failed, 1, __ATOMIC_RELEASE);
  PublishWord(&counters.version, version());  // wakes the waiting, with the version they know
}

Status TableWriter::WriteRows(Span<const int64_t> keys, const float* embeddings,
                              const float* states, const ParallelFor& parallel_for) {
  UniqueKeys unique;
  unique.Reset(keys.size());
  std::vector<int64_t> sources(static_cast<size_t>(keys.size()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    sources[static_cast<size_t>(unique.Number(keys[i]))] = i;
  }
  RowSet set;
  TFHYBRID_RETURN_IF_ERROR(Prepare(unique.keys(), &set));
  CreateRows(unique.keys(), &set, parallel_for);
  const int64_t width = dim();
  const int64_t state_width = StateFloats();
  parallel_for(unique.size(), width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = set.rows[static_cast<size_t>(i)];
      const int64_t source = sources[static_cast<size_t>(i)];
      std::memcpy(EmbeddingAt(row), embeddings + source * width,
                  static_cast<size_t>(width) * sizeof(float));
      if (state_width == 0) continue;
      if (states == nullptr) {
        InitializeState(optimizer_, width, StateAt(row));
      } else {
        std::memcpy(StateAt(row), states + source * state_width,
                    static_cast<size_t>(state_width) * sizeof(float));
      }
    }
  });
  return Status::Ok();
}

Status TableWriter::Clear() {
  const uint64_t rows_before = table()->counters.rows;
  __atomic_store_n(&table()->counters.rows, 0, __ATOMIC_RELEASE);
  const Status built = BuildIndex(kFirstIndexSlots);
  if (!built.ok()) {
    __atomic_store_n(&table()->counters.rows, rows_before, __ATOMIC_RELEASE);
    return built;
  }
  __atomic_store_n(&table()->counters.failed, 0, __ATOMIC_RELEASE);
  return Status::Ok();
}

Status TableWriter::ReadState(int64_t first, int64_t count, float* states) const {
  if (first < 0 || count < 0 || count > rows() - first) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", name(), "' has ", rows(),
                         " rows. Received: first=", first, ", count=", count);
  }
  const int64_t width = StateFloats();
  for (int64_t i = 0; width > 0 && i < count; ++i) {
    std::memcpy(states + i * width, StateAt(first + i), static_cast<size_t>(width) * sizeof(float));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
