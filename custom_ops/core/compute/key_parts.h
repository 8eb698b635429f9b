// KeyParts: the keys of each table divided into disjoint parts, which threads merge side by side.
//
// A part is chosen by hash, or by position if there is only one rank and nothing to merge. It
// depends only on the keys and on the number of parts. Each key is hashed once: if every part
// looked for its keys itself, the time would grow with the square of the keys.
//
// Reusable scratch; Divide() is not thread-safe, reading is.
#ifndef TFHYBRID_CORE_COMPUTE_KEY_PARTS_H_
#define TFHYBRID_CORE_COMPUTE_KEY_PARTS_H_

#include <cstdint>
#include <vector>

#include "core/compute/rank_gradients.h"
#include "core/util/parallel.h"
#include "core/util/span.h"

namespace tfhybrid {

// The least number of keys for a separate part.
constexpr int64_t kPartKeys = 16384;

// Divides the keys[t] keys of each table t among units, which have `table` and `part`, and returns
// the number of parts of each table. Existing units keep their scratch.
template <typename Unit>
std::vector<int64_t> PlanUnits(const std::vector<int64_t>& keys, std::vector<Unit>* units) {
  std::vector<int64_t> parts;
  size_t used = 0;
  for (size_t table = 0; table < keys.size(); ++table) {
    parts.push_back(1 + keys[table] / kPartKeys);
    for (int64_t part = 0; part < parts.back(); ++part, ++used) {
      if (used == units->size()) units->emplace_back();
      Unit& unit = (*units)[used];
      unit.table = table;
      unit.part = part;
    }
  }
  units->resize(used);
  return parts;
}

// A part of a table's keys.
struct KeyPart {
  int64_t part = 0;
  int64_t parts = 1;
  // By rank, the positions of the part's keys among the rank's keys, ascending. Empty if the part
  // has all keys, or if there is one rank.
  std::vector<Span<const uint32_t>> positions = {};
};

class KeyParts {
 public:
  // Divides the keys of the ranks of each table t into parts[t] parts.
  void Divide(const std::vector<std::vector<RankGradients>>& tables,
              const std::vector<int64_t>& parts, const ParallelFor& parallel_for);

  KeyPart Of(size_t table, int64_t part) const;

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

#endif  // TFHYBRID_CORE_COMPUTE_KEY_PARTS_H_
