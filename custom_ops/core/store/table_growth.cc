// How a table grows: a background thread creates chunks and index generations ahead of time.
//
// Reserving memory takes a third of a millisecond per megabyte, and as much again for huge pages;
// filling a new index takes about 15 ns per key. No step should wait for that. So what a table will
// need next is created while it still has space, and only adopted when the space is used up. A
// table that fills up faster than the background thread can follow waits for it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/store/table_writer.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

// Anything smaller is made on the spot, faster than a thread is started.
constexpr int64_t kWorthAThread = int64_t{1} << 20;
// An index in the making is adopted when it is this close to the last row.
constexpr int64_t kCaughtUp = 4096;

template <typename T>
bool Ready(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Status TableWriter::Reserve(int64_t rows) {
  if (rows > 0) TFHYBRID_RETURN_IF_ERROR(MakeTier());
  while (locator_.Capacity(static_cast<int64_t>(chunks_.size())) < rows) {
    TFHYBRID_RETURN_IF_ERROR(AddChunk());
  }
  return ReserveIndex(rows);
}

int64_t TableWriter::Room() const {
  const int64_t capacity = locator_.Capacity(static_cast<int64_t>(chunks_.size()));
  const int64_t keys = MaxKeysOf(index_kind(), SlotCount(index_file_)) - index_freed_;
  const int64_t room = std::min(capacity, keys) - rows();
  return waiting_ == nullptr ? room : std::min(room, waiting_->Room());
}

Status TableWriter::AddChunk() {
  MappedChunk chunk = {};
  bool made = false;
  if (next_chunk_.valid()) {
    Result<MappedChunk> ahead = next_chunk_.get();
    made = ahead.ok();
    if (made) chunk = ahead.Take();
  }
  if (!made) {
    TFHYBRID_ASSIGN_OR_RETURN(chunk, MakeChunk(static_cast<int64_t>(chunks_.size())));
  }
  TFHYBRID_FAULT_POINT();
  const std::lock_guard<std::mutex> guard(chunks_mutex_);
  chunks_.push_back(std::move(chunk));
  __atomic_store_n(&table()->counters.chunks, chunks_.size(), __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  return Status::Ok();
}

Result<TableWriter::MappedChunk> TableWriter::MakeChunk(int64_t number) const {
  const int64_t rows = locator_.ChunkRows(number);
  const int64_t first = locator_.Capacity(number);
  const std::string purpose = "table '" + name() + "', rows " + std::to_string(first) + " to " +
                              std::to_string(first + rows - 1);
  if (in_files() && first + rows > CompactIndex::kMaxRows) {
    return Status::Error(StatusCode::kResourceExhausted, "No room for ", purpose, ": a table in ",
                         "files has at max_keys ", CompactIndex::kMaxRows, " rows");
  }
  MappedChunk chunk = {};
  TFHYBRID_ASSIGN_OR_RETURN(chunk.rows,
                            CreateChunk(paths_.Rows(number), IdentityOf(SegmentKind::kRows, number),
                                        {rows, ChunkFloats()}, purpose));
  FindRowsIn(&chunk, rows);
  for (int64_t i = 0; in_files() && i < rows; ++i) {
    chunk.addresses[i] = static_cast<uint64_t>(first + i) << 32;
  }
  TFHYBRID_FAULT_POINT();
  Status added = AddState(number, &chunk);
  if (added.ok()) added = AddHistory(number, &chunk);
  if (added.ok()) added = ReserveRecords(first, first + rows);
  if (!added.ok()) {
    paths_.RemoveChunk(number);
    return added;
  }
  return chunk;
}

void TableWriter::FindRowsIn(MappedChunk* chunk, int64_t rows) const {
  chunk->keys = reinterpret_cast<int64_t*>(chunk->rows.mutable_data() + kPageBytes);
  uint8_t* const beside = chunk->rows.mutable_data() + EmbeddingsOffset(rows);
  if (in_files()) {
    chunk->addresses = reinterpret_cast<uint64_t*>(beside);
  } else {
    chunk->embeddings = reinterpret_cast<float*>(beside);
  }
}

Status TableWriter::AddState(int64_t number, MappedChunk* chunk) const {
  if (StateFloats() == 0 || in_files()) return Status::Ok();
  const int64_t rows = locator_.ChunkRows(number);
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk->state,
      CreateChunk(paths_.State(number), IdentityOf(SegmentKind::kState, number),
                  {rows, StateFloats()},
                  "table '" + name() + "', optimizer state of " + std::to_string(rows) + " rows"));
  chunk->states = reinterpret_cast<float*>(chunk->state.mutable_data() + kPageBytes);
  return Status::Ok();
}

Status TableWriter::AddHistory(int64_t number, MappedChunk* chunk) const {
  if (policy().kind == PolicyKind::kNone) return Status::Ok();
  const int64_t rows = locator_.ChunkRows(number);
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk->history,
      CreateChunk(paths_.History(number), IdentityOf(SegmentKind::kHistory, number),
                  {rows, kHistoryFloats},
                  "table '" + name() + "', histories of " + std::to_string(rows) + " rows"));
  chunk->histories = reinterpret_cast<RowHistory*>(chunk->history.mutable_data() + kPageBytes);
  return Status::Ok();
}

Status TableWriter::ReserveIndex(int64_t keys) {
  if (next_index_.valid() && Ready(next_index_)) AdoptIndexAhead();
  const auto has_room = [&] {
    return keys + index_freed_ <= MaxKeysOf(index_kind(), SlotCount(index_file_));
  };
  if (!has_room() && next_index_.valid()) AdoptIndexAhead();
  if (has_room()) return Status::Ok();
  return BuildIndex(SlotsNeeded(keys));
}

int64_t TableWriter::SlotsNeeded(int64_t keys) const {
  return NextSlots(index_kind(), SlotCount(index_file_), keys);
}

Status TableWriter::BuildIndex(int64_t slots) {
  DropIndexAhead();
  TFHYBRID_ASSIGN_OR_RETURN(IndexAhead made, MakeIndex(slots));
  PublishIndex(std::move(made));
  return Status::Ok();
}

// In the background too: beside the thread that creates rows and adds chunks.
Result<TableWriter::IndexAhead> TableWriter::MakeIndex(int64_t slots) const {
  const uint64_t generation = table()->counters.index_generation + 1;
  IndexAhead made;
  // What an attempt without memory has left: no counter names it.
  unlink(paths_.Index(generation).c_str());
  TFHYBRID_ASSIGN_OR_RETURN(
      made.file,
      CreateSegment(paths_.Index(generation),
                    {SegmentKind::kIndex, table()->header.token, generation},
                    IndexBytes(index_kind(), slots),
                    "table '" + name() + "', index of " + std::to_string(slots) + " slots"));
  reinterpret_cast<IndexSegment*>(made.file.mutable_data())->slots = static_cast<uint64_t>(slots);
  made.index = TableIndex(made.file, index_kind());
  TFHYBRID_FAULT_POINT();
  do {
    IndexRows(rows(), &made);
  } while (rows() - made.rows > kCaughtUp && rows() < MaxKeysOf(index_kind(), slots));
  return made;
}

// From the rows, which lie in order, and not from the old index, which does not.
void TableWriter::IndexRows(int64_t end, IndexAhead* made) const {
  std::vector<const int64_t*> keys_of_chunks;
  {
    const std::lock_guard<std::mutex> guard(chunks_mutex_);
    for (const MappedChunk& chunk : chunks_) keys_of_chunks.push_back(chunk.keys);
  }
  // Rows that move meanwhile may be met twice; PublishIndex() then sets right what is wrong.
  const bool may_move = policy().kind != PolicyKind::kNone;
  while (made->rows < end) {
    const RowLocator::ChunkOffset at = locator_.Locate(made->rows);
    const int64_t* keys = keys_of_chunks[static_cast<size_t>(at.chunk)] + at.offset;
    const int64_t count = std::min(locator_.ChunkRows(at.chunk) - at.offset, end - made->rows);
    const auto key_at = [keys](int64_t i) { return __atomic_load_n(&keys[i], __ATOMIC_RELAXED); };
    made->index.AddBatch(count, made->rows, key_at, may_move);
    made->rows += count;
  }
}

void TableWriter::PublishIndex(IndexAhead made) {
  IndexRows(rows(), &made);
  std::vector<int64_t> corrected = index_ahead_notes_;
  for (const int64_t key : index_ahead_notes_) {
    made.freed += made.index.Correct(key, FindRow(key), [&](int64_t row) {
      if (row < rows()) corrected.push_back(KeyOf(row));
    });
  }
  for (const int64_t key : corrected) {
    const int64_t row = FindRow(key);
    if (row != KeyIndex::kMissing) made.freed += made.index.Complete(key, row);
  }
  index_ahead_notes_.clear();
  const uint64_t generation = table()->counters.index_generation + 1;
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&table()->counters.index_generation, generation, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  // A process that has it mapped keeps it until it unmaps it.
  if (generation > 1) unlink(paths_.Index(generation - 1).c_str());
  index_file_ = std::move(made.file);
  index_ = made.index;
  index_freed_ = made.freed;
}

void TableWriter::NoteForIndexAhead(int64_t key) {
  if (next_index_.valid()) index_ahead_notes_.push_back(key);
}

void TableWriter::GrowAhead(int64_t created) {
  // Who loads can wait for what is needed, and may have no memory for more.
  if (table()->counters.loading != 0) return;
  const auto chunks = static_cast<int64_t>(chunks_.size());
  const int64_t slots = SlotCount(index_file_);
  const int64_t capacity = locator_.Capacity(chunks);
  const int64_t last_chunk = locator_.ChunkRows(chunks - 1);
  const bool chunk_soon = capacity - rows() < std::max(last_chunk / 4, 2 * created);
  // An index that costs little a key has little room left when the next one is made.
  const int64_t max_keys = MaxKeysOf(index_kind(), slots);
  const int64_t enough = in_files() ? max_keys / 32 * 31 : max_keys / 4 * 3;
  const bool index_soon = rows() + index_freed_ + 4 * created > enough;
  try {
    if (chunk_soon && !next_chunk_.valid() &&
        RowChunkBytes(locator_.ChunkRows(chunks), ChunkFloats()) >= kWorthAThread) {
      next_chunk_ = std::async(std::launch::async, [this, chunks] { return MakeChunk(chunks); });
    }
    const int64_t wanted = SlotsNeeded(rows() + 4 * created);
    if (index_soon && !next_index_.valid() && IndexBytes(index_kind(), wanted) >= kWorthAThread) {
      next_index_ = std::async(std::launch::async, [this, wanted] { return MakeIndex(wanted); });
    }
  } catch (const std::system_error&) {
    // No thread to be had: what is needed will be made when it is needed.
  }
}

void TableWriter::AdoptIndexAhead() {
  Result<IndexAhead> made = next_index_.get();
  // Where there was no room for it, its time has not come: the old one is not full yet, or
  // BuildIndex() will say so.
  if (made.ok()) PublishIndex(made.Take());
  index_ahead_notes_.clear();
}

void TableWriter::DropIndexAhead() {
  if (!next_index_.valid()) return;
  index_ahead_notes_.clear();
  if (next_index_.get().ok()) unlink(paths_.Index(table()->counters.index_generation + 1).c_str());
}

void TableWriter::DropAhead() {
  DropIndexAhead();
  if (!next_chunk_.valid() || !next_chunk_.get().ok()) return;
  paths_.RemoveChunk(static_cast<int64_t>(chunks_.size()));
}

}  // namespace tfhybrid
