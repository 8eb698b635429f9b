#include "core/store/table_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr int64_t kBlockRows = 4096;

uint64_t HashFloats(uint64_t hash, const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    hash = Mix64(hash ^ bits) + kGoldenGamma;
  }
  return hash;
}

}  // namespace

uint64_t RowDigest(int64_t key, const float* embedding, int64_t dim, const float* state,
                   int64_t state_floats) {
  const uint64_t key_hash = Mix64(static_cast<uint64_t>(key) + 1);
  return HashFloats(HashFloats(key_hash, embedding, dim), state, state_floats);
}

Result<uint64_t> TableDigest(OpenTable* table) {
  const std::lock_guard<std::mutex> guard(table->writing);
  TableReader* reader = table->reader.get();
  const TableWriter* writer = table->writer.get();
  const int64_t dim = reader->dim();
  const int64_t state = writer == nullptr ? 0 : StateSlots(writer->optimizer().kind) * dim;
  std::vector<int64_t> keys(kBlockRows);
  std::vector<float> embeddings(static_cast<size_t>(kBlockRows * dim));
  std::vector<float> states(static_cast<size_t>(kBlockRows * state));
  uint64_t digest = 0;
  const int64_t rows = reader->Stats().rows;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - first);
    TFHYBRID_RETURN_IF_ERROR(reader->ReadRows(first, count, keys.data(), embeddings.data()));
    if (state > 0) TFHYBRID_RETURN_IF_ERROR(writer->ReadState(first, count, states.data()));
    for (int64_t i = 0; i < count; ++i) {
      digest += RowDigest(keys[static_cast<size_t>(i)], embeddings.data() + i * dim, dim,
                          states.data() + i * state, state);
    }
  }
  return digest;
}

}  // namespace tfhybrid
