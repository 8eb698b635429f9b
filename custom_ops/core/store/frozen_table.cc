#include "core/store/frozen_table.h"

#include <algorithm>
#include <utility>

#include "core/compute/row_update.h"
#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

constexpr int64_t kWordRows = 64;
// Words that are read before an update that waits for the chunk gets its turn.
constexpr size_t kPieceWords = 4;

}  // namespace

FrozenTable::FrozenTable(const Snapshot& snapshot, const RowLocator& locator, int64_t dim,
                         int64_t state_floats, const std::vector<ChunkData>& sources,
                         std::shared_ptr<const RowTier> tier, const ChangedRows* changed,
                         std::vector<int64_t> removed)
    : snapshot_(snapshot),
      locator_(locator),
      dim_(dim),
      state_floats_(state_floats),
      whole_(changed == nullptr),
      has_history_(!sources.empty() && sources.front().histories != nullptr),
      removed_(std::move(removed)),
      tier_(std::move(tier)) {
  int64_t first_row = 0;
  for (size_t number = 0; number < sources.size() && first_row < snapshot.rows; ++number) {
    chunks_.push_back(std::make_unique<FrozenChunk>());
    FrozenChunk* const chunk = chunks_.back().get();
    chunk->source = sources[number];
    const int64_t room = locator_.ChunkRows(static_cast<int64_t>(number));
    const int64_t frozen =
        FreezeChunk(first_row, std::min(room, snapshot.rows - first_row), changed, chunk);
    first_row += room;
    if (frozen == 0) continue;
    if (parts_.empty() || parts_.back().rows + frozen > locator_.MaxChunkRows()) {
      parts_.push_back({number, number, 0});
    }
    parts_.back().end = number + 1;
    parts_.back().rows += frozen;
  }
}

// Returns the number of rows that are to be read. Chunks begin at multiples of 64 rows.
int64_t FrozenTable::FreezeChunk(int64_t first_row, int64_t rows, const ChangedRows* changed,
                                 FrozenChunk* chunk) {
  int64_t count = 0;
  chunk->words.reserve(static_cast<size_t>((rows + kWordRows - 1) / kWordRows));
  for (int64_t offset = 0; offset < rows; offset += kWordRows) {
    uint64_t frozen = ~uint64_t{0};
    if (changed != nullptr) frozen = changed->Word((first_row + offset) / kWordRows);
    if (rows - offset < kWordRows) frozen &= (uint64_t{1} << (rows - offset)) - 1;
    chunk->words.push_back({frozen, 0});
    count += __builtin_popcountll(frozen);
  }
  return count;
}

void FrozenTable::Keep(int64_t row, int64_t key, const TableRow& now) {
  if (row >= snapshot_.rows) return;
  const RowLocator::ChunkOffset at = locator_.Locate(row);
  FrozenChunk& chunk = *chunks_[static_cast<size_t>(at.chunk)];
  // Before the lock: most rows are not to be read.
  if ((chunk.words[static_cast<size_t>(at.offset / kWordRows)].frozen >> (at.offset % kWordRows) &
       1) == 0) {
    return;
  }
  const MutexLock guard(chunk.mutex);
  float* const to = RoomFor(&chunk, at.offset, key, now.history);
  if (to == nullptr) return;
  CopyFloats(now.embedding, dim_, to);
  CopyFloats(now.state, state_floats_, to + dim_);
}

void FrozenTable::KeepFileRow(int64_t row, int64_t key, const RowHistory* history) {
  if (row >= snapshot_.rows) return;
  const RowLocator::ChunkOffset at = locator_.Locate(row);
  FrozenChunk& chunk = *chunks_[static_cast<size_t>(at.chunk)];
  const MutexLock guard(chunk.mutex);
  float* const to = RoomFor(&chunk, at.offset, key, history);
  if (to == nullptr) return;
  const Status read = tier_->Read(chunk.source.addresses + at.offset, to);
  if (!read.ok()) chunk.failure = read;
}

float* FrozenTable::RoomFor(FrozenChunk* chunk, int64_t offset, int64_t key,
                            const RowHistory* history) {
  Word& word = chunk->words[static_cast<size_t>(offset / kWordRows)];
  const uint64_t bit = uint64_t{1} << (offset % kWordRows);
  if ((word.frozen & bit) == 0 || offset < chunk->read || (word.changed & bit) != 0) return nullptr;
  chunk->kept.emplace(offset, chunk->rows.size());
  chunk->rows.push_back({key, history != nullptr ? *history : RowHistory()});
  const size_t before = chunk->floats.size();
  chunk->floats.resize(before + static_cast<size_t>(dim_ + state_floats_));
  word.changed |= bit;
  return chunk->floats.data() + before;
}

Status FrozenTable::Read(int64_t part, Target out) {
  const ChunkRange& run = parts_[static_cast<size_t>(part)];
  for (size_t chunk = run.first; chunk < run.end; ++chunk) {
    TFHYBRID_RETURN_IF_ERROR(ReadChunk(chunks_[chunk].get(), &out));
  }
  return Status::Ok();
}

Status FrozenTable::ReadChunk(FrozenChunk* chunk, Target* out) {
  std::vector<float> record(static_cast<size_t>(dim_ + state_floats_));
  const size_t words = chunk->words.size();
  for (size_t first = 0; first < words; first += kPieceWords) {
    const size_t end = std::min(first + kPieceWords, words);
    const MutexLock guard(chunk->mutex);
    TFHYBRID_RETURN_IF_ERROR(chunk->failure);
    for (size_t word = first; word < end; ++word) {
      const uint64_t changed = chunk->words[word].changed;
      for (uint64_t left = chunk->words[word].frozen; left != 0; left &= left - 1) {
        const int bit = __builtin_ctzll(left);
        TFHYBRID_RETURN_IF_ERROR(CopyRow(*chunk, static_cast<int64_t>(word) * kWordRows + bit,
                                         (changed >> bit & 1) != 0, record.data(), out));
      }
    }
    chunk->read = static_cast<int64_t>(end) * kWordRows;
  }
  const MutexLock guard(chunk->mutex);
  chunk->kept.clear();
  std::vector<KeptRow>().swap(chunk->rows);
  std::vector<float>().swap(chunk->floats);
  return Status::Ok();
}

Status FrozenTable::CopyRow(const FrozenChunk& chunk, int64_t offset, bool changed, float* record,
                            Target* out) const {
  const float* from = nullptr;
  const float* from_state = nullptr;
  KeptRow row = {};
  if (changed) {
    const size_t number = chunk.kept.at(offset);
    from = chunk.floats.data() + number * static_cast<size_t>(dim_ + state_floats_);
    from_state = from + dim_;
    row = chunk.rows[number];
  } else {
    if (chunk.source.addresses != nullptr) {
      TFHYBRID_RETURN_IF_ERROR(tier_->Read(chunk.source.addresses + offset, record));
      from = record;
      from_state = record + dim_;
    } else {
      from = chunk.source.embeddings + offset * dim_;
      if (state_floats_ > 0) from_state = chunk.source.states + offset * state_floats_;
    }
    row.key = chunk.source.keys[offset];
    if (has_history_) row.history = chunk.source.histories[offset];
  }
  *out->key++ = row.key;
  if (has_history_) *out->history++ = row.history;
  CopyFloats(from, dim_, out->embedding);
  ScaleRow(static_cast<float>(snapshot_.decay), dim_, out->embedding);
  CopyFloats(from_state, state_floats_, out->state);
  out->embedding += dim_;
  out->state += state_floats_;
  return Status::Ok();
}

}  // namespace tfhybrid
