#include "core/compute/key_parts.h"

#include <numeric>
#include <utility>

#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDivideCostNs = 5;

// From the upper bits of a key's hash, since tables of keys use the lower ones.
int64_t PartOf(int64_t key, int64_t parts) {
  const uint64_t upper = Mix64(static_cast<uint64_t>(key)) >> 32;
  return static_cast<int64_t>(upper * static_cast<uint64_t>(parts) >> 32);
}

}  // namespace

void KeyParts::Divide(const std::vector<std::vector<RankGradients>>& tables,
                      const std::vector<int64_t>& parts, const ParallelFor& parallel_for) {
  tables_.resize(tables.size());
  std::vector<std::pair<size_t, size_t>> ranks;  // table and rank of what is to be divided
  int64_t keys = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    const bool divides = parts[t] > 1 && tables[t].size() > 1;
    tables_[t].parts = parts[t];
    tables_[t].ranks.resize(divides ? tables[t].size() : 0);
    for (size_t rank = 0; rank < tables_[t].ranks.size(); ++rank) {
      ranks.emplace_back(t, rank);
      keys += tables[t][rank].keys.size();
    }
  }
  const auto count = static_cast<int64_t>(ranks.size());
  if (count == 0) return;
  parallel_for(count, kDivideCostNs * (keys / count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [t, rank] = ranks[static_cast<size_t>(i)];
      DivideRank(tables[t][rank].keys, parts[t], &tables_[t].ranks[rank]);
    }
  });
}

void KeyParts::DivideRank(Span<const int64_t> keys, int64_t parts, Divided* divided) {
  std::vector<int64_t>& starts = divided->starts;
  starts.assign(static_cast<size_t>(parts) + 1, 0);
  for (const int64_t key : keys) ++starts[static_cast<size_t>(PartOf(key, parts)) + 1];
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  std::vector<int64_t> next(starts.begin(), starts.end() - 1);
  divided->positions.resize(static_cast<size_t>(keys.size()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    const auto position = static_cast<size_t>(next[static_cast<size_t>(PartOf(keys[i], parts))]++);
    divided->positions[position] = static_cast<uint32_t>(i);
  }
}

KeyPart KeyParts::Of(size_t table, int64_t part) const {
  KeyPart of = {part, tables_[table].parts};
  for (const Divided& rank : tables_[table].ranks) {
    const int64_t start = rank.starts[static_cast<size_t>(part)];
    const int64_t end = rank.starts[static_cast<size_t>(part) + 1];
    of.positions.emplace_back(rank.positions.data() + start, end - start);
  }
  return of;
}

}  // namespace tfhybrid
