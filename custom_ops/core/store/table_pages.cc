#include "core/store/table_pages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// Fewer numbers are not told from those of a row that came to zero.
constexpr int64_t kFewestFloats = 64;

// No training comes to numbers beyond that, not to squares of gradients either; of random bytes one
// number in twenty does.
constexpr float kLargest = 1e35f;

struct Found {
  bool plausible, zero;
};

TFHYBRID_SIMD Found Look(const float* values, int64_t count) {
  uint32_t beyond = 0, any = 0;
  for (int64_t i = 0; i < count; ++i) {
    beyond |= std::fabs(values[i]) <= kLargest ? 0 : 1;  // NaN is beyond, too
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    any |= bits;
  }
  return {beyond == 0, any == 0};
}

// Whether embeddings of a table may all be zero over a page.
bool MayBeZero(const Initializer& initializer, const OptimizerConfig& optimizer) {
  const bool starts_there =
      initializer.kind == InitializerKind::kZeros || (initializer.a == 0.0 && initializer.b == 0.0);
  const bool is_drawn_there = optimizer.kind == OptimizerKind::kFtrl || optimizer.penalty_l1 != 0.0;
  return starts_there || is_drawn_there;
}

// Calls `look(begin, end)` for the pages of the floats [0, count) at `values`, cut at their ends.
template <typename LookAt>
void ForEachPage(const float* values, int64_t count, const LookAt& look) {
  const auto address = reinterpret_cast<uintptr_t>(values);
  const int64_t floats = kPageBytes / static_cast<int64_t>(sizeof(float));
  int64_t end = floats - static_cast<int64_t>(address % kPageBytes / sizeof(float));
  for (int64_t begin = 0; begin < count; begin = end, end += floats) {
    look(begin, std::min(end, count));
  }
}

}  // namespace

Status CheckPages(const TablePage& page, const RowChunks& chunks) {
  if (chunks.files().used()) return Status::Ok();  // their records have checksums
  const int64_t state_floats = chunks.state_floats();
  std::vector<float> state(static_cast<size_t>(state_floats));
  if (!state.empty()) InitializeState(chunks.optimizer(), page.dim(), state.data());
  const bool zero_state =
      std::all_of(state.begin(), state.end(), [](float value) { return value == 0.0f; });
  const bool zero_rows = MayBeZero(InitializerOf(page.shape()), chunks.optimizer());
  Status status;
  const auto check = [&](const char* what, const float* values, int64_t count, bool may_be_zero) {
    ForEachPage(values, count, [&](int64_t begin, int64_t end) {
      const Found found = Look(values + begin, end - begin);
      const bool lost = found.zero && !may_be_zero && end - begin >= kFewestFloats;
      if (!status.ok() || (found.plausible && !lost)) return;
      status = Status::Error(
          StatusCode::kDataLoss, "Table '", page.name(), "' is damaged: a page of ", what,
          found.plausible ? " is zero" : " has numbers that no training comes to",
          ". Another program has written to ", page.paths().Table(), " or beside it");
    });
  };
  int64_t chunk = 0, first = 0;
  for (const FrozenTable::ChunkData& source : chunks.Sources()) {
    const int64_t rows = page.locator().ChunkRows(chunk++);
    const int64_t count = std::clamp<int64_t>(page.rows() - first, 0, rows);
    check("embeddings", source.embeddings, count * page.dim(), zero_rows);
    if (state_floats > 0) check("optimizer state", source.states, count * state_floats, zero_state);
    first += rows;
  }
  return status;
}

}  // namespace tfhybrid
