#include "core/store/table_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr int64_t kBlockRows = 4096;

// Each step of a row's hash waits for the one before; several rows side by side fill the wait.
constexpr int64_t kLanes = 8;

// Takes `count` floats of each row, which are as far apart, into the rows' hashes.
template <int64_t lanes>
void HashFloats(const float* values, int64_t count, uint64_t* hashes) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      uint32_t bits;
      std::memcpy(&bits, values + lane * count + i, sizeof(bits));
      hashes[lane] = Mix64(hashes[lane] ^ bits) + kGoldenGamma;
    }
  }
}

template <int64_t lanes>
uint64_t Digest(const int64_t* keys, const float* embeddings, int64_t dim, const float* states,
                int64_t state_floats) {
  uint64_t hashes[lanes], sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    hashes[lane] = Mix64(static_cast<uint64_t>(keys[lane]) + 1);
  }
  HashFloats<lanes>(embeddings, dim, hashes);
  HashFloats<lanes>(states, state_floats, hashes);
  for (int64_t lane = 0; lane < lanes; ++lane) sum += hashes[lane];
  return sum;
}

}  // namespace

uint64_t RowsDigest(Span<const int64_t> keys, const float* embeddings, int64_t dim,
                    const float* states, int64_t state_floats) {
  uint64_t sum = 0;
  int64_t row = 0;
  for (; row + kLanes <= keys.size(); row += kLanes) {
    sum += Digest<kLanes>(keys.data() + row, embeddings + row * dim, dim,
                          states + row * state_floats, state_floats);
  }
  for (; row < keys.size(); ++row) {
    sum += Digest<1>(keys.data() + row, embeddings + row * dim, dim, states + row * state_floats,
                     state_floats);
  }
  return sum;
}

Result<uint64_t> TableDigest(OpenTable* table) {
  const std::lock_guard<std::mutex> guard(table->writing);
  TableReader* reader = table->reader.get();
  const TableWriter* writer = table->writer.get();
  const int64_t dim = reader->dim();
  const int64_t state = writer == nullptr ? 0 : StateFloats(writer->optimizer(), dim);
  std::vector<int64_t> keys(kBlockRows);
  std::vector<float> embeddings(static_cast<size_t>(kBlockRows * dim));
  std::vector<float> states(static_cast<size_t>(kBlockRows * state));
  uint64_t digest = 0;
  const int64_t rows = reader->Stats().rows;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - first);
    TFHYBRID_RETURN_IF_ERROR(reader->ReadRows(first, count, keys.data(), embeddings.data()));
    if (state > 0) TFHYBRID_RETURN_IF_ERROR(writer->ReadState(first, count, states.data()));
    digest += RowsDigest(Span<const int64_t>(keys.data(), count), embeddings.data(), dim,
                         states.data(), state);
  }
  return digest;
}

}  // namespace tfhybrid
