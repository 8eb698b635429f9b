#include "core/store/table_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/compute/optimizer.h"
#include "core/compute/row_update.h"
#include "core/util/copy_floats.h"
#include "core/util/counters.h"
#include "core/util/prefetch.h"

namespace tfhybrid {
namespace {

// Keys between two stages of a lookup. Memory answers after some 200 ns and a core has a dozen
// lines under way; further ahead, prefetched lines are pushed out again.
constexpr int64_t kDistance = 16;

void Count(const UnseenKeys& unseen, int64_t keys, int64_t missing) {
  if (!unseen.counts) return;
  AddTo(Counter::kKeysRead, keys);
  AddTo(Counter::kUnseenKeys, missing);
}

// Takes the row of each key, `row_of(i)`, which was fetched kDistance keys before.
template <typename RowOf, typename Take>
void TakeRows(Span<const int64_t> keys, int64_t dim, const RowOf& row_of, const Take& take) {
  const auto fetch = [&](int64_t i) {
    const float* row = i < keys.size() ? row_of(i) : nullptr;
    if (row != nullptr) PrefetchFloats(row, dim);
  };
  for (int64_t i = 0; i < kDistance; ++i) fetch(i);
  for (int64_t i = 0; i < keys.size(); ++i) {
    fetch(i + kDistance);
    take(row_of(i), keys[i]);
  }
}

}  // namespace

Result<std::unique_ptr<TableReader>> TableReader::Open(const std::string& directory, uint64_t token,
                                                       const std::string& table_name) {
  TablePaths paths(directory, table_name);
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile table,
      OpenSegment(paths.Table(), {SegmentKind::kTable, token, 0}, sizeof(TableSegment)));
  const auto& segment = *reinterpret_cast<const TableSegment*>(table.data());
  TFHYBRID_RETURN_IF_ERROR(CheckTable(paths.Table(), segment));
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile tier, OpenTier(paths.Tier(), token, false));
  return std::unique_ptr<TableReader>(
      new TableReader(directory, std::move(table), std::move(tier), std::move(paths)));
}

TableReader::TableReader(const std::string& directory, MappedFile table, MappedFile tier,
                         TablePaths paths)
    : directory_(directory),
      table_(std::move(table)),
      tier_(std::move(tier)),
      paths_(std::move(paths)),
      locator_(LocatorOf(segment().shape)) {}

std::string TableReader::files() const {
  if (!in_files()) return "";
  return std::string(tier().shape.files, strnlen(tier().shape.files, kMaxFilesPath));
}

int64_t TableReader::cache_bytes() const {
  return in_files() ? static_cast<int64_t>(tier().shape.cache_bytes) : 0;
}

std::string TableReader::name() const {
  return std::string(shape().name, strnlen(shape().name, kMaxTableName));
}

Initializer TableReader::initializer() const { return InitializerOf(shape()); }

uint64_t TableReader::version() const { return LoadAcquire(segment().counters.version); }

double TableReader::decay() const {
  return LoadAcquire(segment().counters.decay) * LoadAcquire(segment().counters.initial_decay);
}

float TableReader::clip_factor() const { return LoadAcquire(segment().counters.clip_factor); }

float TableReader::RowDecay() const {
  return static_cast<float>(LoadAcquire(segment().counters.decay));
}

float TableReader::InitialDecay() const {
  return static_cast<float>(LoadAcquire(segment().counters.initial_decay));
}

TableStats TableReader::Stats() const {
  const TableCounters& counters = segment().counters;
  TableStats stats = {};
  stats.rows = static_cast<int64_t>(LoadAcquire(counters.rows));
  stats.version = static_cast<int64_t>(LoadAcquire(counters.version));
  stats.chunks = static_cast<int64_t>(LoadAcquire(counters.chunks));
  const int64_t state_floats = in_files() ? 0 : StateFloats(segment().optimizer, dim());
  for (int64_t chunk = 0; chunk < stats.chunks; ++chunk) {
    const int64_t rows = locator_.ChunkRows(chunk);
    stats.embedding_bytes += RowChunkBytes(rows, ChunkFloats());
    if (state_floats > 0) stats.state_bytes += StateChunkBytes(rows, state_floats);
    if (shape().policy.kind != PolicyKind::kNone) {
      stats.history_bytes += StateChunkBytes(rows, kHistoryFloats);
    }
  }
  MappedView view = {};
  if (OpenRows(&view).ok() && view.tier != nullptr) {
    const CacheSegment& cache = view.tier->cache();
    stats.file_bytes = view.tier->FileBytes(locator_.Capacity(stats.chunks));
    stats.cache_bytes = view.tier->cache_bytes();
    stats.cache_hits = static_cast<int64_t>(LoadAcquire(cache.hits));
    stats.cache_misses = static_cast<int64_t>(LoadAcquire(cache.misses));
    stats.written_rows = static_cast<int64_t>(LoadAcquire(cache.written));
  }
  if (MapIndex(&view).ok()) {
    stats.index_bytes = view.index_file->size();
    stats.index_slots = SlotCount(*view.index_file);
  }
  stats.evicted = static_cast<int64_t>(LoadAcquire(counters.evicted));
  stats.bytes = table_.size() + tier_.size() + stats.cache_bytes + stats.embedding_bytes +
                stats.state_bytes + stats.history_bytes + stats.index_bytes;
  return stats;
}

Result<std::shared_ptr<const TableReader::MappedView>> TableReader::CurrentView() {
  const MutexLock guard(mutex_);
  const TableCounters& counters = segment().counters;
  if (view_ == nullptr || view_->generation != LoadAcquire(counters.index_generation) ||
      view_->chunks.size() < LoadAcquire(counters.chunks) ||
      (in_files() && view_->tier_generation != LoadAcquire(tier().generation))) {
    TFHYBRID_ASSIGN_OR_RETURN(view_, Extend(view_.get()));
  }
  return view_;
}

Result<std::shared_ptr<const TableReader::MappedView>> TableReader::Extend(
    const MappedView* old) const {
  auto view = std::make_shared<MappedView>();
  if (old != nullptr) *view = *old;
  // The index first: a row that it names lies in a chunk that was counted before.
  if (old == nullptr || old->generation != LoadAcquire(segment().counters.index_generation)) {
    TFHYBRID_RETURN_IF_ERROR(MapIndex(view.get()));
  }
  const auto chunks = static_cast<int64_t>(LoadAcquire(segment().counters.chunks));
  TFHYBRID_RETURN_IF_ERROR(MapChunks(view.get(), chunks));
  TFHYBRID_RETURN_IF_ERROR(OpenRows(view.get()));
  return std::shared_ptr<const MappedView>(std::move(view));
}

Status TableReader::MapIndex(MappedView* view) const {
  while (true) {
    const uint64_t generation = LoadAcquire(segment().counters.index_generation);
    const std::string path = paths_.Index(generation);
    Result<MappedFile> file =
        OpenSegment(path, {SegmentKind::kIndex, segment().header.token, generation}, kPageBytes);
    if (!file.ok()) {
      // The leader may have moved on to the next generation and removed this one meanwhile.
      if (LoadAcquire(segment().counters.index_generation) != generation) continue;
      return file.status();
    }
    TFHYBRID_RETURN_IF_ERROR(CheckIndex(path, file.value(), index_kind()));
    view->index_file = std::make_shared<const MappedFile>(file.Take());
    if (in_files()) {
      view->compact = CompactIndexOf(*view->index_file);
    } else {
      view->index = KeyIndex(SlotsOf(*view->index_file));
    }
    view->generation = generation;
    return Status::Ok();
  }
}

Status TableReader::OpenRows(MappedView* view) const {
  while (in_files()) {
    const uint64_t generation = LoadAcquire(tier().generation);
    if (generation == view->tier_generation) break;
    view->tier = nullptr;
    view->tier_generation = generation;
    if (generation == 0) break;
    const std::string directory =
        TierDirectory(files(), directory_, segment().header.token, name());
    Result<std::shared_ptr<const RowTier>> opened =
        RowTier::Open(paths_, directory, segment().header.token, generation);
    if (opened.ok()) {
      view->tier = opened.Take();
      break;
    }
    // The leader may have removed this one meanwhile.
    if (LoadAcquire(tier().generation) == generation) return opened.status();
  }
  return Status::Ok();
}

Status TableReader::MapChunks(MappedView* view, int64_t count) const {
  for (auto chunk = static_cast<int64_t>(view->chunks.size()); chunk < count; ++chunk) {
    const int64_t rows = locator_.ChunkRows(chunk);
    const std::string path = paths_.Rows(chunk);
    TFHYBRID_ASSIGN_OR_RETURN(
        MappedFile file,
        OpenSegment(path,
                    {SegmentKind::kRows, segment().header.token, static_cast<uint64_t>(chunk)},
                    RowChunkBytes(rows, ChunkFloats())));
    TFHYBRID_RETURN_IF_ERROR(CheckChunk(path, file, rows, ChunkFloats()));
    view->chunks.push_back(std::make_shared<const MappedFile>(std::move(file)));
    const uint8_t* const beside = view->chunks.back()->data() + EmbeddingsOffset(rows);
    if (in_files()) {
      view->keys.push_back(
          reinterpret_cast<const int64_t*>(view->chunks.back()->data() + kPageBytes));
      view->addresses.push_back(reinterpret_cast<const uint64_t*>(beside));
    } else {
      view->embeddings.push_back(reinterpret_cast<const float*>(beside));
    }
  }
  view->capacity = locator_.Capacity(static_cast<int64_t>(view->chunks.size()));
  return Status::Ok();
}

template <typename Take>
Status TableReader::Visit(const LookupKeys& lookup, const Take& take) {
  const Span<const int64_t> keys = lookup.keys;
  if (in_files()) return VisitFile(keys, take);
  if (lookup.found != nullptr) {
    const std::vector<const float*>& rows = lookup.found->rows;
    TakeRows(keys, dim(), [&](int64_t i) { return rows[lookup.numbers[i]]; }, take);
    return Status::Ok();
  }
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedView> view, CurrentView());
  const float* rows[KeyIndex::kGroup];
  for (int64_t begin = 0; begin < keys.size(); begin += KeyIndex::kGroup) {
    const int64_t count = std::min(KeyIndex::kGroup, keys.size() - begin);
    const Span<const int64_t> group = keys.subspan(begin, count);
    TFHYBRID_RETURN_IF_ERROR(FindRows(*view, group, rows));
    TakeRows(group, dim(), [&](int64_t i) { return rows[i]; }, take);
  }
  return Status::Ok();
}

// The same where rows lie in files. The disk, too, has kDistance records on their way.
template <typename Take>
Status TableReader::VisitFile(Span<const int64_t> keys, const Take& take) {
  // Before the view: rows that were there have their files in it. Those that come later do not
  // count; when this lookup began, their keys read their initial values.
  const auto rows = static_cast<int64_t>(LoadAcquire(segment().counters.rows));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedView> view, CurrentView());
  const int64_t known_rows = view->tier == nullptr ? 0 : std::min(rows, view->capacity);
  std::vector<float> record(
      view->tier == nullptr ? 0 : static_cast<size_t>(view->tier->record_floats()));
  int64_t found[kDistance];
  for (int64_t ahead = 0; ahead < keys.size() + kDistance; ++ahead) {
    const int64_t at = ahead % kDistance;
    const int64_t taken = ahead - kDistance;
    if (taken >= 0) {
      const int64_t row = found[at];
      if (row != KeyIndex::kMissing) {
        TFHYBRID_RETURN_IF_ERROR(view->tier->Read(AddressAtRow(*view, row), record.data()));
      }
      take(row == KeyIndex::kMissing ? nullptr : record.data(), keys[taken]);
    }
    if (ahead >= keys.size()) continue;
    if (ahead + kSlotsAhead < keys.size()) view->compact.Fetch(keys[ahead + kSlotsAhead]);
    const int64_t row = view->compact.Find(
        keys[ahead], [&](int64_t number, int64_t key) { return HasKey(*view, number, key); });
    found[at] = row < known_rows ? row : KeyIndex::kMissing;
    if (row >= 0 && row < known_rows) view->tier->Fetch(AddressAtRow(*view, row));
  }
  return Status::Ok();
}

Status TableReader::Lookup(const LookupKeys& keys, RowCursor<float> out, const UnseenKeys& unseen) {
  if (keys.keys.empty()) return Status::Ok();
  const int64_t width = dim();
  const Initializer initial = initializer();
  const float row_decay = RowDecay(), initial_decay = InitialDecay();
  // Side by side with those of other features, the rows of one lie in strides that no processor
  // fetches on its own.
  RowCursor<float> ahead = out;
  for (int64_t i = 0; i < kDistance; ++i) ahead.Next();
  uint8_t* has_row = unseen.has_row;
  int64_t missing = 0;
  const Status visited = Visit(keys, [&](const float* row, int64_t key) {
    float* target = out.Next();
    __builtin_prefetch(ahead.Next(), 1);
    if (has_row != nullptr) *has_row++ = row != nullptr;
    if (row != nullptr) {
      CopyFloats(row, width, target);
    } else {
      ++missing;
      if (unseen.zeros) {
        std::fill_n(target, width, 0.0f);
        return;
      }
      InitializeRow(initial, shape().seed, key, Span<float>(target, width));
      ScaleRow(initial_decay, width, target);
    }
    ScaleRow(row_decay, width, target);
  });
  Count(unseen, keys.keys.size(), missing);
  return visited;
}

Status TableReader::LookupRaw(Span<const int64_t> keys, float* rows, uint8_t* has_row) {
  const int64_t width = dim();
  const Initializer initial = initializer();
  return Visit(keys, [&](const float* row, int64_t key) {
    *has_row++ = row != nullptr;
    if (row != nullptr) {
      CopyFloats(row, width, rows);
    } else {
      InitializeRow(initial, shape().seed, key, Span<float>(rows, width));
    }
    rows += width;
  });
}

Status TableReader::FindKeys(Span<const int64_t> keys, uint8_t* found) {
  return Visit(keys, [&](const float* row, int64_t /*key*/) { *found++ = row != nullptr; });
}

Status TableReader::LookupBags(const LookupKeys& keys, const Bags& bags, int64_t first,
                               int64_t last, RowCursor<float> out, const UnseenKeys& unseen) {
  const Initializer initial = initializer();
  const float row_decay = RowDecay(), initial_decay = InitialDecay();
  std::vector<float> scratch(static_cast<size_t>(dim()));
  BagCombiner combiner(bags, first, last, dim(), out);
  const LookupKeys read = keys.subspan(bags.splits[first], bags.splits[last] - bags.splits[first]);
  uint8_t* has_row = unseen.has_row;
  int64_t missing = 0;
  const Status visited = Visit(read, [&](const float* row, int64_t key) {
    if (has_row != nullptr) *has_row++ = row != nullptr;
    if (row == nullptr) {
      ++missing;
      if (unseen.zeros) {
        std::fill(scratch.begin(), scratch.end(), 0.0f);
      } else {
        InitializeRow(initial, shape().seed, key, scratch);
        ScaleRow(initial_decay, dim(), scratch.data());
      }
      row = scratch.data();
    }
    if (row_decay != 1.0f) {
      if (row != scratch.data()) CopyFloats(row, dim(), scratch.data());
      ScaleRow(row_decay, dim(), scratch.data());
      row = scratch.data();
    }
    combiner.Add(row);
  });
  Count(unseen, read.keys.size(), missing);
  return visited;
}

bool TableReader::Reached(uint64_t version) const {
  const TableCounters& counters = segment().counters;
  return LoadAcquire(counters.version) >= version || LoadAcquire(counters.failed) != 0;
}

Status TableReader::WaitVersion(uint64_t version, const std::function<Status()>& check_alive,
                                int slice_ms) const {
  const TableCounters& counters = segment().counters;
  while (LoadAcquire(counters.version) < version) {
    if (const uint64_t failed = LoadAcquire(counters.failed); failed != 0) {
      return Status::Error(
          failed <= static_cast<uint64_t>(StatusCode::kSystem) ? static_cast<StatusCode>(failed)
                                                               : StatusCode::kFailedPrecondition,
          "The leader could not update table '", name(),
          "': ", std::string(counters.failure, strnlen(counters.failure, kMaxFailure)));
    }
    if (!WaitWord(&counters.version, version, slice_ms)) {
      TFHYBRID_RETURN_IF_ERROR(check_alive());
    }
  }
  return Status::Ok();
}

uint64_t TableReader::Sequence() const { return LoadAcquire(segment().counters.sequence); }

bool TableReader::SequenceIs(uint64_t before) const {
  // The copies must not move behind the load.
  std::atomic_thread_fence(std::memory_order_acquire);
  return __atomic_load_n(&segment().counters.sequence, __ATOMIC_RELAXED) == before;
}

bool TableReader::WaitForQuiet(int timeout_ms) const {
  const uint64_t sequence = Sequence();
  return sequence % 2 == 0 || WaitWord(&segment().counters.sequence, sequence + 1, timeout_ms);
}

Status TableReader::ReadRows(int64_t first, int64_t count, int64_t* keys, float* embeddings) {
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedView> view, CurrentView());
  const int64_t rows = MappedRows(*view);
  if (first < 0 || count < 0 || count > rows - first) {
    return Status::Error(StatusCode::kInvalidArgument, "Table '", name(), "' has ", rows,
                         " rows. Received: first=", first, ", count=", count);
  }
  for (int64_t done = 0; done < count;) {
    const RowLocator::ChunkOffset at = locator_.Locate(first + done);
    const auto chunk = static_cast<size_t>(at.chunk);
    const int64_t run = std::min(count - done, locator_.ChunkRows(at.chunk) - at.offset);
    const auto* chunk_keys =
        reinterpret_cast<const int64_t*>(view->chunks[chunk]->data() + kPageBytes);
    std::memcpy(keys + done, chunk_keys + at.offset, static_cast<size_t>(run) * sizeof(int64_t));
    if (in_files()) {
      TFHYBRID_RETURN_IF_ERROR(ReadFileRows(*view, first + done, run, embeddings + done * dim()));
    } else {
      std::memcpy(embeddings + done * dim(), view->embeddings[chunk] + at.offset * dim(),
                  static_cast<size_t>(run * dim()) * sizeof(float));
    }
    ScaleRow(RowDecay(), run * dim(), embeddings + done * dim());
    done += run;
  }
  return Status::Ok();
}

Status TableReader::ReadFileRows(const MappedView& view, int64_t first, int64_t count,
                                 float* embeddings) const {
  std::vector<float> record(static_cast<size_t>(view.tier->record_floats()));
  for (int64_t i = 0; i < count; ++i) {
    TFHYBRID_RETURN_IF_ERROR(view.tier->Read(AddressAtRow(view, first + i), record.data()));
    CopyFloats(record.data(), dim(), embeddings + i * dim());
  }
  return Status::Ok();
}

}  // namespace tfhybrid
