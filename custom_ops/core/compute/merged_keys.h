// MergedKeys: the distinct keys of all ranks for a table, and the sum of each key's gradients over
// the ranks.
//
// Gradients stay where the ranks wrote them. Sum() adds them up when the row is updated, so nothing
// is copied for keys that only one rank has. Gradients are summed by local rank within a host, then
// by host. Keys are in order of first occurrence, rank by rank.
//
// The keys may be merged in `parts` disjoint shares, on as many threads. Shares are chosen by hash,
// or by position if there is only one rank and nothing to merge. The result depends only on the
// messages and on `parts`, so a merge can be repeated after a crash. Reusable scratch; Merge() is
// not thread-safe, reading is.
#ifndef TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
#define TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_

#include <cstdint>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/util/span.h"

namespace tfhybrid {

// The least number of keys for a separate share.
constexpr int64_t kUnitKeys = 16384;

// Divides the keys[t] keys of each table t among units, which have `table`, `part` and `parts`.
// Existing units keep their scratch.
template <typename Unit>
void PlanUnits(const std::vector<int64_t>& keys, std::vector<Unit>* units) {
  size_t used = 0;
  for (size_t table = 0; table < keys.size(); ++table) {
    const int64_t parts = 1 + keys[table] / kUnitKeys;
    for (int64_t part = 0; part < parts; ++part, ++used) {
      if (used == units->size()) units->emplace_back();
      Unit& unit = (*units)[used];
      unit.table = table;
      unit.part = part;
      unit.parts = parts;
    }
  }
  units->resize(used);
}

// The contribution of one rank, or of one host for all of its ranks, to a table. REQUIRES: its keys
// are distinct.
struct RankGradients {
  Span<const int64_t> keys;
  const float* gradients;  // [keys, dim]
  int64_t host;
  const uint16_t* ranks = nullptr;  // of a host: in how many of its ranks each key occurred
};

class MergedKeys {
 public:
  // Merges share `part` of `parts` of the ranks' keys. REQUIRES: the ranks of a host are
  // consecutive.
  void Merge(const std::vector<RankGradients>& ranks, int64_t dim, int64_t part, int64_t parts);

  Span<const int64_t> keys() const { return keys_; }
  // Ranks that have keys()[i].
  uint32_t Count(int64_t i) const {
    if (only_ == nullptr) return first(i).count;
    return only_ranks_ == nullptr ? 1 : only_ranks_[i];
  }
  // Floats of scratch that Sum() needs.
  static int64_t ScratchFloats(int64_t dim) { return 2 * dim; }
  // The sum for keys()[i]: in `scratch`, or in place if there is only one gradient.
  const float* Sum(int64_t i, float* scratch) const;

 private:
  // A key's first gradient, and the list of the others, in order.
  struct First {
    const float* gradient;
    uint32_t host;
    uint32_t count;
    uint32_t next;  // in others_, + 1; 0 is none
    uint32_t last;  // likewise
  };
  struct Other {
    const float* gradient;
    uint32_t host;
    uint32_t next;
  };

  const First& first(int64_t i) const { return firsts_[static_cast<size_t>(i)]; }
  void Add(int64_t key, const float* gradient, uint32_t host, uint32_t ranks);

  int64_t dim_ = 0;
  Span<const int64_t> keys_;
  const float* only_ = nullptr;  // the gradients of the one rank there is; then firsts_ is empty
  const uint16_t* only_ranks_ = nullptr;
  UniqueKeys unique_;
  std::vector<First> firsts_;
  std::vector<Other> others_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
