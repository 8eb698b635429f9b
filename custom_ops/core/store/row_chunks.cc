#include "core/store/row_chunks.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "core/util/copy_floats.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

RowChunks::RowChunks(const TablePage* page, MappedFile tier)
    : page_(page),
      locator_(page->locator()),
      dim_(page->dim()),
      files_(page, std::move(tier), [this](int64_t row) { return AddressAtRow(row); }) {}

Status RowChunks::Attach() {
  TFHYBRID_RETURN_IF_ERROR(AttachOptimizer());
  const TableCounters& counters = page_->counters();
  const auto chunks = static_cast<int64_t>(counters.chunks);
  for (int64_t number = 0; number < chunks; ++number) {
    TFHYBRID_RETURN_IF_ERROR(AttachChunk(number));
  }
  if (counters.rows > static_cast<uint64_t>(locator_.Capacity(chunks))) {
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                         "' is damaged: ", counters.rows, " rows in ", chunks, " chunks");
  }
  return files_.Attach(dim_ + state_floats_);
}

Status RowChunks::AttachOptimizer() {
  OptimizerConfig& config = page_->segment()->optimizer;
  const uint64_t start = page_->optimizer_start(), version = page_->version();
  // The leader died while it replaced the optimizer.
  if (start == kReplaced) config.kind = OptimizerKind::kNone;
  if (config.kind == OptimizerKind::kNone) {
    // State without an update is that of a leader who died while it set the optimizer.
    if (start == kReplaced || start == version) return Status::Ok();
    if (access(page_->paths().State(0).c_str(), F_OK) != 0) return Status::Ok();
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                         "' is damaged: it was updated, and has optimizer state but no optimizer");
  }
  if (start > version) {
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                         "' is damaged: its optimizer began at version ", start, " of ", version);
  }
  const Status valid = ValidateOptimizer(config);
  if (!valid.ok()) {
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                         "' is damaged: ", valid.message());
  }
  optimizer_ = config;
  state_floats_ = StateFloats(config, dim_);
  return Status::Ok();
}

Status RowChunks::AttachChunk(int64_t number) {
  const int64_t rows = locator_.ChunkRows(number);
  const TablePaths& paths = page_->paths();
  RowChunk chunk = {};
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk.rows,
      OpenChunkWritable(paths.Rows(number), page_->IdentityOf(SegmentKind::kRows, number),
                        {rows, ChunkFloats()}));
  FindRowsIn(&chunk, rows);
  if (state_floats_ > 0 && !files_.used()) {
    TFHYBRID_ASSIGN_OR_RETURN(
        chunk.state,
        OpenChunkWritable(paths.State(number), page_->IdentityOf(SegmentKind::kState, number),
                          {rows, state_floats_}));
    chunk.states = reinterpret_cast<float*>(chunk.state.mutable_data() + kPageBytes);
  }
  if (page_->policy().kind != PolicyKind::kNone) {
    TFHYBRID_ASSIGN_OR_RETURN(
        chunk.history,
        OpenChunkWritable(paths.History(number), page_->IdentityOf(SegmentKind::kHistory, number),
                          {rows, kHistoryFloats}));
    chunk.histories = reinterpret_cast<RowHistory*>(chunk.history.mutable_data() + kPageBytes);
  }
  chunks_.push_back(std::move(chunk));
  return Status::Ok();
}

void RowChunks::RemoveUnfinished() const {
  if (state_floats_ == 0) {
    for (int64_t made = 0; unlink(page_->paths().State(made).c_str()) == 0;) ++made;
  }
  for (int64_t chunk = count(); page_->paths().RemoveChunk(chunk);) ++chunk;
}

std::vector<FrozenTable::ChunkData> RowChunks::Sources() const {
  std::vector<FrozenTable::ChunkData> sources;
  sources.reserve(chunks_.size());
  for (const RowChunk& chunk : chunks_) {
    sources.push_back(
        {chunk.keys, chunk.embeddings, chunk.states, chunk.histories, chunk.addresses});
  }
  return sources;
}

std::vector<const int64_t*> RowChunks::KeysOfChunks() const {
  const MutexLock guard(mutex_);
  std::vector<const int64_t*> keys;
  keys.reserve(chunks_.size());
  for (const RowChunk& chunk : chunks_) keys.push_back(chunk.keys);
  return keys;
}

Status RowChunks::CheckRange(int64_t first, int64_t count) const {
  const int64_t rows = page_->rows();
  if (first >= 0 && count >= 0 && count <= rows - first) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "Table '", page_->name(), "' has ", rows,
                       " rows. Received: first=", first, ", count=", count);
}

Status RowChunks::ReadState(int64_t first, int64_t count, float* states) const {
  TFHYBRID_RETURN_IF_ERROR(CheckRange(first, count));
  std::vector<float> record(files_.used() ? static_cast<size_t>(dim_ + state_floats_) : 0);
  for (int64_t i = 0; state_floats_ > 0 && i < count; ++i) {
    if (files_.used()) TFHYBRID_RETURN_IF_ERROR(files_.Read(first + i, record.data()));
    const float* const state = files_.used() ? record.data() + dim_ : Row(first + i).state;
    CopyFloats(state, state_floats_, states + i * state_floats_);
  }
  return Status::Ok();
}

Status RowChunks::ReadHistory(int64_t first, int64_t count, RowHistory* histories) const {
  TFHYBRID_RETURN_IF_ERROR(CheckRange(first, count));
  for (int64_t i = 0; page_->policy().kind != PolicyKind::kNone && i < count; ++i) {
    histories[i] = *HistoryOf(first + i);
  }
  return Status::Ok();
}

Status RowChunks::Reserve(int64_t rows) {
  if (rows > 0) TFHYBRID_RETURN_IF_ERROR(files_.Make(dim_ + state_floats_, Capacity()));
  while (Capacity() < rows) TFHYBRID_RETURN_IF_ERROR(AddChunk());
  return Status::Ok();
}

Status RowChunks::AddChunk() {
  RowChunk chunk = {};
  bool made = false;
  if (next_.valid()) {
    Result<RowChunk> ahead = next_.get();
    made = ahead.ok();
    if (made) chunk = ahead.Take();
  }
  if (!made) {
    TFHYBRID_ASSIGN_OR_RETURN(chunk, MakeChunk(count()));
  }
  TFHYBRID_FAULT_POINT();
  const MutexLock guard(mutex_);
  chunks_.push_back(std::move(chunk));
  __atomic_store_n(&page_->counters().chunks, chunks_.size(), __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  return Status::Ok();
}

Result<RowChunks::RowChunk> RowChunks::MakeChunk(int64_t number) const {
  const int64_t rows = locator_.ChunkRows(number);
  const int64_t first = locator_.Capacity(number);
  const std::string purpose = "table '" + page_->name() + "', rows " + std::to_string(first) +
                              " to " + std::to_string(first + rows - 1);
  if (files_.used() && first + rows > CompactIndex::kMaxRows) {
    return Status::Error(StatusCode::kResourceExhausted, "No room for ", purpose, ": a table in ",
                         "files has at max_keys ", CompactIndex::kMaxRows, " rows");
  }
  RowChunk chunk = {};
  TFHYBRID_ASSIGN_OR_RETURN(chunk.rows, CreateChunk(page_->paths().Rows(number),
                                                    page_->IdentityOf(SegmentKind::kRows, number),
                                                    {rows, ChunkFloats()}, purpose));
  FindRowsIn(&chunk, rows);
  for (int64_t i = 0; files_.used() && i < rows; ++i) {
    chunk.addresses[i] = static_cast<uint64_t>(first + i) << 32;
  }
  TFHYBRID_FAULT_POINT();
  Status added = AddState(number, &chunk);
  if (added.ok()) added = AddHistory(number, &chunk);
  if (added.ok()) added = files_.Reserve(first, first + rows);
  if (!added.ok()) {
    page_->paths().RemoveChunk(number);
    return added;
  }
  return chunk;
}

void RowChunks::FindRowsIn(RowChunk* chunk, int64_t rows) const {
  chunk->keys = reinterpret_cast<int64_t*>(chunk->rows.mutable_data() + kPageBytes);
  uint8_t* const beside = chunk->rows.mutable_data() + EmbeddingsOffset(rows);
  if (files_.used()) {
    chunk->addresses = reinterpret_cast<uint64_t*>(beside);
  } else {
    chunk->embeddings = reinterpret_cast<float*>(beside);
  }
}

Status RowChunks::AddState(int64_t number, RowChunk* chunk) const {
  if (state_floats_ == 0 || files_.used()) return Status::Ok();
  const int64_t rows = locator_.ChunkRows(number);
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk->state,
      CreateChunk(
          page_->paths().State(number), page_->IdentityOf(SegmentKind::kState, number),
          {rows, state_floats_},
          "table '" + page_->name() + "', optimizer state of " + std::to_string(rows) + " rows"));
  chunk->states = reinterpret_cast<float*>(chunk->state.mutable_data() + kPageBytes);
  return Status::Ok();
}

Status RowChunks::AddHistory(int64_t number, RowChunk* chunk) const {
  if (page_->policy().kind == PolicyKind::kNone) return Status::Ok();
  const int64_t rows = locator_.ChunkRows(number);
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk->history,
      CreateChunk(page_->paths().History(number), page_->IdentityOf(SegmentKind::kHistory, number),
                  {rows, kHistoryFloats},
                  "table '" + page_->name() + "', histories of " + std::to_string(rows) + " rows"));
  chunk->histories = reinterpret_cast<RowHistory*>(chunk->history.mutable_data() + kPageBytes);
  return Status::Ok();
}

void RowChunks::GrowAhead(int64_t created) {
  const int64_t next = count();
  const int64_t last_rows = locator_.ChunkRows(next - 1);
  const bool soon = Capacity() - page_->rows() < std::max(last_rows / 4, 2 * created);
  if (!soon || next_.valid()) return;
  if (RowChunkBytes(locator_.ChunkRows(next), ChunkFloats()) < kWorthAThread) return;
  try {
    next_ = std::async(std::launch::async, [this, next] { return MakeChunk(next); });
  } catch (const std::system_error&) {
    // No thread to be had: the chunk will be made when it is needed.
  }
}

void RowChunks::DropAhead() {
  if (!next_.valid() || !next_.get().ok()) return;
  page_->paths().RemoveChunk(count());
}

Status RowChunks::SetOptimizer(const OptimizerConfig& config) {
  optimizer_ = config;
  state_floats_ = StateFloats(config, dim_);
  try {
    for (int64_t chunk = 0; chunk < count(); ++chunk) {
      const Status added = AddState(chunk, &chunks_[static_cast<size_t>(chunk)]);
      TFHYBRID_FAULT_POINT();
      if (!added.ok()) {
        DropState();
        return added;
      }
    }
  } catch (...) {  // no memory
    DropState();
    throw;
  }
  for (int64_t row = 0; row < page_->rows(); ++row) {
    InitializeState(optimizer_, dim_, Row(row).state);
  }
  return Status::Ok();
}

void RowChunks::DropState() {
  files_.Drop();
  optimizer_ = OptimizerConfig();
  state_floats_ = 0;
  for (int64_t number = 0; number < count(); ++number) {
    RowChunk& chunk = chunks_[static_cast<size_t>(number)];
    chunk.state = MappedFile();
    chunk.states = nullptr;
    unlink(page_->paths().State(number).c_str());
    TFHYBRID_FAULT_POINT();
  }
}

}  // namespace tfhybrid
