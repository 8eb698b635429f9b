#include "core/compute/merged_keys.h"

#include <numeric>
#include <utility>

#include "core/util/copy_floats.h"
#include "core/util/hash.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

TFHYBRID_SIMD void AddRow(int64_t dim, const float* __restrict row, float* __restrict sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] += row[column];
}

constexpr int64_t kDivideCostNs = 5;

// From the upper bits of a key's hash, since tables of keys use the lower ones.
int64_t PartOf(int64_t key, int64_t parts) {
  const uint64_t upper = Mix64(static_cast<uint64_t>(key)) >> 32;
  return static_cast<int64_t>(upper * static_cast<uint64_t>(parts) >> 32);
}

}  // namespace

void MergedKeys::Merge(const std::vector<RankGradients>& ranks, int64_t dim, const KeyPart& part) {
  dim_ = dim;
  firsts_.clear();
  others_.clear();
  only_ = nullptr;
  of_first_rank_ = first_begin_ = 0;
  first_positions_ = {};
  if (ranks.size() == 1) {
    const int64_t begin = ranks[0].keys.size() * part.part / part.parts;
    const int64_t end = ranks[0].keys.size() * (part.part + 1) / part.parts;
    keys_ = ranks[0].keys.subspan(begin, end - begin);
    first_begin_ = begin;
    of_first_rank_ = keys_.size();
    only_ = ranks[0].gradients + begin * dim;
    only_ranks_ = ranks[0].ranks == nullptr ? nullptr : ranks[0].ranks + begin;
    return;
  }
  int64_t max_keys = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    max_keys += part.parts == 1 ? ranks[r].keys.size() : part.positions[r].size();
  }
  unique_.Reset(max_keys);
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (part.parts == 1) {
      for (int64_t i = 0; i < ranks[r].keys.size(); ++i) Add(ranks[r], i);
    } else {
      for (const uint32_t position : part.positions[r]) Add(ranks[r], position);
    }
    if (r == 0) of_first_rank_ = unique_.size();
  }
  keys_ = unique_.keys();
  if (!part.positions.empty()) first_positions_ = part.positions[0];
}

void MergedKeys::Add(const RankGradients& rank, int64_t position) {
  const auto number = static_cast<size_t>(unique_.Number(rank.keys[position]));
  const float* gradient = rank.gradients + position * dim_;
  const auto host = static_cast<uint32_t>(rank.host);
  const uint32_t ranks = rank.ranks == nullptr ? 1 : rank.ranks[position];
  if (number == firsts_.size()) {
    firsts_.push_back({gradient, host, ranks, 0, 0});
    return;
  }
  others_.push_back({gradient, host, 0});
  const auto here = static_cast<uint32_t>(others_.size());
  First& first = firsts_[number];
  (first.next == 0 ? first.next : others_[first.last - 1].next) = here;
  first.last = here;
  first.count += ranks;
}

const float* MergedKeys::Sum(int64_t i, float* scratch) const {
  if (only_ != nullptr) return only_ + i * dim_;
  const First& first = this->first(i);
  if (first.next == 0) return first.gradient;
  float* host_sum = scratch;
  float* total = scratch + dim_;
  bool several_hosts = false;
  uint32_t host = first.host;
  CopyFloats(first.gradient, dim_, host_sum);
  for (uint32_t next = first.next; next != 0;) {
    const Other& other = others_[next - 1];
    next = other.next;
    if (other.host == host) {
      AddRow(dim_, other.gradient, host_sum);
      continue;
    }
    (several_hosts ? AddRow(dim_, host_sum, total) : CopyFloats(host_sum, dim_, total));
    several_hosts = true;
    host = other.host;
    CopyFloats(other.gradient, dim_, host_sum);
  }
  if (!several_hosts) return host_sum;
  AddRow(dim_, host_sum, total);
  return total;
}

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
