// MergedKeys: the distinct keys of all ranks for a table, and the sum of each key's gradients over
// the ranks.
//
// Gradients stay where the ranks wrote them. Sum() adds them up when the row is updated, so nothing
// is copied for keys that only one rank has. Gradients are summed by local rank within a host, then
// by host. Keys are in order of first occurrence, rank by rank.
//
// KeyParts divides the keys of each table into disjoint parts, which threads merge side by side. A
// part is chosen by hash, or by position if there is only one rank and nothing to merge. Each key
// is hashed once: if every part looked for its keys itself, the time would grow with the square of
// the keys. The result depends only on the messages and on the number of parts, so a merge can be
// repeated after a crash.
//
// Reusable scratch; Merge() and Divide() are not thread-safe, reading is.
#ifndef TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
#define TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_

#include <cstdint>
#include <vector>

#include "core/compute/rank_gradients.h"
#include "core/compute/unique_keys.h"
#include "core/util/parallel.h"
#include "core/util/span.h"

namespace tfhybrid {

// The least number of keys for a separate part.
constexpr int64_t kPartKeys = 16384;

// A part of a table's keys.
struct KeyPart {
  int64_t part = 0;
  int64_t parts = 1;
  // By rank, the positions of the part's keys among the rank's keys, ascending. Empty if the part
  // has all keys, or if there is one rank.
  std::vector<Span<const uint32_t>> positions = {};
};

class MergedKeys {
 public:
  // Merges a part of the ranks' keys. REQUIRES: the ranks of a host are consecutive, and the keys
  // of a rank distinct.
  void Merge(const std::vector<RankGradients>& ranks, int64_t dim, const KeyPart& part = {});

  Span<const int64_t> keys() const { return keys_; }
  // Ranks that have keys()[i].
  uint32_t Count(int64_t i) const {
    if (only_ == nullptr) return first(i).count;
    return only_ranks_ == nullptr ? 1 : only_ranks_[i];
  }
  // Where keys()[i] is among the keys of the first rank; -1 where that rank has it not.
  int64_t FirstRankPosition(int64_t i) const {
    if (i >= of_first_rank_) return -1;
    return first_positions_.empty() ? first_begin_ + i : first_positions_[i];
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
  // A key of a rank, by its position there.
  void Add(const RankGradients& rank, int64_t position);

  int64_t dim_ = 0;
  Span<const int64_t> keys_;
  const float* only_ = nullptr;  // the gradients of the one rank there is; then firsts_ is empty
  const uint16_t* only_ranks_ = nullptr;
  // The keys of the first rank come first: so many, at these positions there, or at all from
  // first_begin_ on.
  int64_t of_first_rank_ = 0;
  int64_t first_begin_ = 0;
  Span<const uint32_t> first_positions_;
  UniqueKeys unique_;
  std::vector<First> firsts_;
  std::vector<Other> others_;
};

// A part of a table's keys, merged by one thread.
struct MergeUnit {
  size_t table = 0;
  int64_t part = 0;
  MergedKeys merged;
};

// Divides the keys[t] keys of each table t among units, and returns the number of parts of each
// table. Existing units keep their scratch.
template <typename Unit>
std::vector<int64_t> PlanUnits(const std::vector<int64_t>& keys, std::vector<Unit>* units) {
  std::vector<int64_t> parts;
  size_t used = 0;
  for (size_t table = 0; table < keys.size(); ++table) {
    parts.push_back(1 + keys[table] / kPartKeys);
    for (int64_t part = 0; part < parts.back(); ++part, ++used) {
      if (used == units->size()) units->emplace_back();
      (*units)[used].table = table;
      (*units)[used].part = part;
    }
  }
  units->resize(used);
  return parts;
}

class KeyParts {
 public:
  // Divides the keys of the ranks of each table t into parts[t] parts.
  void Divide(const std::vector<std::vector<RankGradients>>& tables,
              const std::vector<int64_t>& parts, const ParallelFor& parallel_for);

  KeyPart Of(size_t table, int64_t part) const;

  // Divides the keys of all tables among units, which are MergeUnits, and merges the units side by
  // side, at `cost` nanoseconds a key. Each thread calls `then(&unit)` for what it has merged.
  // Returns the number of keys of all ranks.
  template <typename Unit, typename Then>
  int64_t Merge(const std::vector<std::vector<RankGradients>>& tables,
                const std::vector<int64_t>& dims, int64_t cost, const ParallelFor& parallel_for,
                std::vector<Unit>* units, const Then& then) {
    int64_t total = 0;
    std::vector<int64_t> keys(tables.size(), 0);
    for (size_t table = 0; table < tables.size(); ++table) {
      for (const RankGradients& rank : tables[table]) keys[table] += rank.keys.size();
      total += keys[table];
    }
    Divide(tables, PlanUnits(keys, units), parallel_for);
    const auto count = static_cast<int64_t>(units->size());
    parallel_for(count, cost * (total / count + 1), [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        Unit& unit = (*units)[static_cast<size_t>(u)];
        unit.merged.Merge(tables[unit.table], dims[unit.table], Of(unit.table, unit.part));
        then(&unit);
      }
    });
    return total;
  }

 private:
  // The keys of a rank, part by part.
  struct Divided {
    std::vector<uint32_t> positions;
    std::vector<int64_t> starts;  // of each part, and their end
  };
  struct TableParts {
    int64_t parts;
    std::vector<Divided> ranks;  // empty where nothing was divided
  };

  static void DivideRank(Span<const int64_t> keys, int64_t parts, Divided* divided);

  std::vector<TableParts> tables_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
