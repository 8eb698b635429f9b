#include "core/store/table_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/util/hash.h"
#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

constexpr int64_t kBlockRows = 4096;

// Each step of a row's hash waits for the one before; several rows side by side fill the wait.
constexpr int64_t kLanes = 8;

// Takes `count` words of 32 bits of each row, which are as far apart, into the rows' hashes.
template <int64_t lanes, typename Word>
void HashWords(const Word* values, int64_t count, uint64_t* hashes) {
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
                int64_t state_floats, const RowHistory* histories) {
  uint64_t hashes[lanes], sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    hashes[lane] = Mix64(static_cast<uint64_t>(keys[lane]) + 1);
  }
  HashWords<lanes>(embeddings, dim, hashes);
  HashWords<lanes>(states, state_floats, hashes);
  if (histories != nullptr) {
    uint32_t words[lanes * kHistoryFloats];
    std::memcpy(words, histories, sizeof(words));
    HashWords<lanes>(words, kHistoryFloats, hashes);
  }
  for (int64_t lane = 0; lane < lanes; ++lane) sum += hashes[lane];
  return sum;
}

}  // namespace

uint64_t RowsDigest(Span<const int64_t> keys, const float* embeddings, int64_t dim,
                    const float* states, int64_t state_floats, const RowHistory* histories) {
  const auto from = [&](int64_t row) { return histories == nullptr ? nullptr : histories + row; };
  uint64_t sum = 0;
  int64_t row = 0;
  for (; row + kLanes <= keys.size(); row += kLanes) {
    sum += Digest<kLanes>(keys.data() + row, embeddings + row * dim, dim,
                          states + row * state_floats, state_floats, from(row));
  }
  for (; row < keys.size(); ++row) {
    sum += Digest<1>(keys.data() + row, embeddings + row * dim, dim, states + row * state_floats,
                     state_floats, from(row));
  }
  return sum;
}

Result<uint64_t> TableDigest(OpenTable* table) {
  const MutexLock guard(table->writing);
  TableReader* reader = table->reader.get();
  const TableWriter* writer = table->writer.get();
  const int64_t dim = reader->dim();
  const int64_t state = writer == nullptr ? 0 : StateFloats(writer->optimizer(), dim);
  std::vector<int64_t> keys(kBlockRows);
  std::vector<float> embeddings(static_cast<size_t>(kBlockRows * dim));
  std::vector<float> states(static_cast<size_t>(kBlockRows * state));
  const bool with_history = writer != nullptr && writer->policy().kind != PolicyKind::kNone;
  std::vector<RowHistory> histories(with_history ? kBlockRows : 0);
  uint64_t digest = 0;
  const int64_t rows = reader->Stats().rows;
  for (int64_t first = 0; first < rows; first += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - first);
    TFHYBRID_RETURN_IF_ERROR(reader->ReadRows(first, count, keys.data(), embeddings.data()));
    if (state > 0)
      TFHYBRID_RETURN_IF_ERROR(writer->chunks().ReadState(first, count, states.data()));
    if (with_history) {
      TFHYBRID_RETURN_IF_ERROR(writer->chunks().ReadHistory(first, count, histories.data()));
    }
    digest += RowsDigest(Span<const int64_t>(keys.data(), count), embeddings.data(), dim,
                         states.data(), state, with_history ? histories.data() : nullptr);
  }
  return digest;
}

}  // namespace tfhybrid
