#include "core/store/frozen_table.h"

#include <algorithm>

#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

// Rows that are read before an update that waits for the chunk gets its turn.
constexpr int64_t kPieceRows = 256;

}  // namespace

FrozenTable::FrozenTable(int64_t rows, uint64_t version, const RowLocator& locator, int64_t dim,
                         int64_t state_floats, const std::vector<Source>& sources)
    : rows_(rows), version_(version), locator_(locator), dim_(dim), state_floats_(state_floats) {
  for (size_t chunk = 0; chunk < sources.size(); ++chunk) {
    chunks_.push_back(std::make_unique<Chunk>());
    chunks_.back()->source = sources[chunk];
    chunks_.back()->changed.resize(
        static_cast<size_t>(locator.ChunkRows(static_cast<int64_t>(chunk))));
  }
}

void FrozenTable::Keep(int64_t row, const TableRow& now) {
  if (row >= rows_) return;
  const RowLocator::Place place = locator_.Locate(row);
  Chunk& chunk = *chunks_[static_cast<size_t>(place.chunk)];
  const std::lock_guard<std::mutex> guard(chunk.mutex);
  if (place.offset < chunk.read || chunk.changed[static_cast<size_t>(place.offset)]) return;
  chunk.kept.emplace(place.offset, chunk.floats.size());
  chunk.floats.insert(chunk.floats.end(), now.embedding, now.embedding + dim_);
  if (state_floats_ > 0) {
    chunk.floats.insert(chunk.floats.end(), now.state, now.state + state_floats_);
  }
  chunk.changed[static_cast<size_t>(place.offset)] = true;
}

void FrozenTable::Read(int64_t first, int64_t count, int64_t* keys, float* embeddings,
                       float* states) {
  while (count > 0) {
    const RowLocator::Place place = locator_.Locate(first);
    const int64_t left = locator_.ChunkRows(place.chunk) - place.offset;
    const int64_t piece = std::min({count, left, kPieceRows});
    ReadWithin(chunks_[static_cast<size_t>(place.chunk)].get(), place.offset, piece, keys,
               embeddings, states);
    first += piece;
    count -= piece;
    keys += piece;
    embeddings += piece * dim_;
    states += piece * state_floats_;
  }
}

void FrozenTable::ReadWithin(Chunk* chunk, int64_t first, int64_t count, int64_t* keys,
                             float* embeddings, float* states) {
  // Keys of rows that exist never change.
  std::copy_n(chunk->source.keys + first, count, keys);
  const std::lock_guard<std::mutex> guard(chunk->mutex);
  for (int64_t i = 0; i < count; ++i) {
    CopyRow(*chunk, first + i, embeddings + i * dim_, states + i * state_floats_);
  }
  chunk->read = first + count;
  if (chunk->read < static_cast<int64_t>(chunk->changed.size())) return;
  chunk->kept.clear();
  std::vector<float>().swap(chunk->floats);
}

void FrozenTable::CopyRow(const Chunk& chunk, int64_t place, float* embedding, float* state) const {
  const float* from = chunk.source.embeddings + place * dim_;
  const float* from_state =
      state_floats_ > 0 ? chunk.source.states + place * state_floats_ : nullptr;
  if (chunk.changed[static_cast<size_t>(place)]) {
    from = chunk.floats.data() + chunk.kept.at(place);
    from_state = from + dim_;
  }
  CopyFloats(from, dim_, embedding);
  CopyFloats(from_state, state_floats_, state);
}

}  // namespace tfhybrid
