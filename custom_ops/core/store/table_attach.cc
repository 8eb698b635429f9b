// How a new leader attaches the tables of a dead one.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/store/table_writer.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

Result<std::unique_ptr<TableWriter>> TableWriter::Attach(const std::string& directory,
                                                         uint64_t token,
                                                         const std::string& table_name) {
  TablePaths paths(directory, table_name);
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      OpenSegmentWritable(paths.Table(), {SegmentKind::kTable, token, 0}, sizeof(TableSegment)));
  const auto* segment = reinterpret_cast<const TableSegment*>(file.data());
  TFHYBRID_RETURN_IF_ERROR(CheckTable(paths.Table(), *segment));
  if (segment->counters.loading != 0) {
    return Status::Error(StatusCode::kDataLoss, "Table '", table_name,
                         "' was being loaded when its leader died: its rows are old and new. Load "
                         "it again");
  }
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile tier, OpenTier(paths.Tier(), token, true));
  std::unique_ptr<TableWriter> writer(
      new TableWriter(directory, std::move(file), std::move(tier), std::move(paths)));
  TFHYBRID_RETURN_IF_ERROR(writer->AttachOptimizer());
  const auto chunks = static_cast<int64_t>(segment->counters.chunks);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    TFHYBRID_RETURN_IF_ERROR(writer->AttachChunk(chunk));
  }
  if (segment->counters.rows > static_cast<uint64_t>(writer->locator_.Capacity(chunks))) {
    return Status::Error(StatusCode::kDataLoss, "Table '", table_name,
                         "' is damaged: ", segment->counters.rows, " rows in ", chunks, " chunks");
  }
  TFHYBRID_RETURN_IF_ERROR(writer->AttachTier());
  TFHYBRID_RETURN_IF_ERROR(writer->AttachIndex());
  writer->RemoveUnfinished();
  TFHYBRID_RETURN_IF_ERROR(writer->AttachRemoval());
  TFHYBRID_RETURN_IF_ERROR(writer->CheckRecords());
  TFHYBRID_RETURN_IF_ERROR(writer->CompleteIndex());
  TFHYBRID_RETURN_IF_ERROR(writer->CheckPages());
  // Where the dead leader was changing rows, they are settled before the first reader comes.
  if (segment->counters.sequence % 2 != 0) writer->EndChange();
  // A failure was the dead leader's: who waits for the next version shall not read of it.
  __atomic_store_n(&writer->table()->counters.failed, 0, __ATOMIC_RELEASE);
  return writer;
}

Status TableWriter::AttachOptimizer() {
  // The leader died while it replaced the optimizer.
  if (optimizer_start() == kReplaced) table()->optimizer.kind = OptimizerKind::kNone;
  const OptimizerConfig config = table()->optimizer;
  if (config.kind == OptimizerKind::kNone) {
    // State without an update is that of a leader who died while it set the optimizer.
    if (optimizer_start() == kReplaced || optimizer_start() == version()) return Status::Ok();
    if (access(paths_.State(0).c_str(), F_OK) != 0) return Status::Ok();
    return Status::Error(StatusCode::kDataLoss, "Table '", name(),
                         "' is damaged: it was updated, and has optimizer state but no optimizer");
  }
  if (optimizer_start() > version()) {
    return Status::Error(StatusCode::kDataLoss, "Table '", name(), "' is damaged: its optimizer ",
                         "began at version ", optimizer_start(), " of ", version());
  }
  const Status valid = ValidateOptimizer(config);
  if (!valid.ok()) {
    return Status::Error(StatusCode::kDataLoss, "Table '", name(),
                         "' is damaged: ", valid.message());
  }
  optimizer_ = config;
  state_floats_ = tfhybrid::StateFloats(config, dim_);
  return Status::Ok();
}

Status TableWriter::AttachChunk(int64_t number) {
  const int64_t rows = locator_.ChunkRows(number);
  MappedChunk chunk = {};
  TFHYBRID_ASSIGN_OR_RETURN(
      chunk.rows, OpenChunkWritable(paths_.Rows(number), IdentityOf(SegmentKind::kRows, number),
                                    {rows, ChunkFloats()}));
  FindRowsIn(&chunk, rows);
  if (StateFloats() > 0 && !in_files()) {
    TFHYBRID_ASSIGN_OR_RETURN(
        chunk.state,
        OpenChunkWritable(paths_.State(number), IdentityOf(SegmentKind::kState, number),
                          {rows, StateFloats()}));
    chunk.states = reinterpret_cast<float*>(chunk.state.mutable_data() + kPageBytes);
  }
  if (policy().kind != PolicyKind::kNone) {
    TFHYBRID_ASSIGN_OR_RETURN(
        chunk.history,
        OpenChunkWritable(paths_.History(number), IdentityOf(SegmentKind::kHistory, number),
                          {rows, kHistoryFloats}));
    chunk.histories = reinterpret_cast<RowHistory*>(chunk.history.mutable_data() + kPageBytes);
  }
  chunks_.push_back(std::move(chunk));
  return Status::Ok();
}

Status TableWriter::AttachRemoval() {
  const Removal& removal = table()->counters.removal;
  if (removal.armed == 0) return Status::Ok();
  const auto rows = static_cast<uint64_t>(this->rows());
  // Either the last row lies there still, or it was the last step that was missing.
  if (removal.row > removal.last || removal.last > rows || removal.last + 1 < rows) {
    return Status::Error(StatusCode::kDataLoss, "Table '", name(), "' is damaged: row ",
                         removal.row, " of ", rows, " is being removed, and ", removal.last,
                         " is the last");
  }
  FinishRemoval();
  return Status::Ok();
}

Status TableWriter::AttachIndex() {
  const uint64_t generation = table()->counters.index_generation;
  const std::string path = paths_.Index(generation);
  TFHYBRID_ASSIGN_OR_RETURN(
      index_file_, OpenSegmentWritable(
                       path, {SegmentKind::kIndex, table()->header.token, generation}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckIndex(path, index_file_, index_kind()));
  const int64_t slots = SlotCount(index_file_);
  if (rows() > MaxKeysOf(index_kind(), slots)) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: ", slots, " slots for ", rows(),
                         " rows");
  }
  index_ = TableIndex(index_file_, index_kind());
  return Status::Ok();
}

// Chunks and index generations that were made and never counted, and the generation before this
// one, if the leader died before it removed it.
void TableWriter::RemoveUnfinished() const {
  auto chunk = static_cast<int64_t>(chunks_.size());
  if (StateFloats() == 0) {
    for (int64_t made = 0; unlink(paths_.State(made).c_str()) == 0;) ++made;
  }
  while (paths_.RemoveChunk(chunk)) ++chunk;
  TFHYBRID_FAULT_POINT();
  const uint64_t generation = table()->counters.index_generation;
  unlink(paths_.Index(generation - 1).c_str());
  unlink(paths_.Index(generation + 1).c_str());
}

// REQUIRES: the chunks are attached.
// A row counts before the index names it, so rows may be missing there; nothing else may be wrong.
Status TableWriter::CompleteIndex() {
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<int64_t> missing, RowsNotInIndex());
  // Counted before anything is inserted: no insertion ends in an index without an empty slot.
  const int64_t named = rows() - static_cast<int64_t>(missing.size());
  const KeyIndex::Use use = index_.CountUse();
  index_freed_ = use.freed;
  const int64_t slots = SlotCount(index_file_);
  if (use.taken != named || rows() + use.freed > MaxKeysOf(index_kind(), slots)) {
    return Status::Error(StatusCode::kDataLoss, "Table '", name(), "' is damaged: its index has ",
                         use.taken, " keys, of which ", named, " have a row, and ", use.freed,
                         " freed slots of ", slots);
  }
  for (const int64_t row : missing) {
    const RowLocator::ChunkOffset at = locator_.Locate(row);
    index_freed_ += index_.Insert(chunks_[static_cast<size_t>(at.chunk)].keys[at.offset], row);
    TFHYBRID_FAULT_POINT();
  }
  return Status::Ok();
}

Result<std::vector<int64_t>> TableWriter::RowsNotInIndex() const {
  constexpr int64_t kBlock = 4096;
  std::vector<int64_t> found(kBlock), missing;
  for (int64_t row = 0, chunk = 0; row < rows(); ++chunk) {
    const int64_t in_chunk = std::min(locator_.ChunkRows(chunk), rows() - row);
    const int64_t* keys = chunks_[static_cast<size_t>(chunk)].keys;
    for (int64_t start = 0; start < in_chunk; start += kBlock) {
      const int64_t count = std::min(kBlock, in_chunk - start);
      FindRows(Span<const int64_t>(keys + start, count), Span<int64_t>(found));
      for (int64_t i = 0; i < count; ++i, ++row) {
        const int64_t named = found[static_cast<size_t>(i)];
        if (named == row) continue;
        if (named != KeyIndex::kMissing) {
          return Status::Error(StatusCode::kDataLoss, "Table '", name(), "' is damaged: key ",
                               keys[start + i], " has the rows ", row, " and ", named);
        }
        missing.push_back(row);
      }
    }
  }
  return missing;
}

}  // namespace tfhybrid
