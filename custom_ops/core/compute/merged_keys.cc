#include "core/compute/merged_keys.h"

#include "core/util/copy_floats.h"
#include "core/util/hash.h"
#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// The share of a key: from the upper bits of its hash, since tables of keys use the lower ones.
int64_t PartOf(int64_t key, int64_t parts) {
  const uint64_t upper = Mix64(static_cast<uint64_t>(key)) >> 32;
  return static_cast<int64_t>(upper * static_cast<uint64_t>(parts) >> 32);
}

TFHYBRID_SIMD void AddRow(int64_t dim, const float* __restrict row, float* __restrict sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] += row[column];
}

}  // namespace

void MergedKeys::Merge(const std::vector<RankGradients>& ranks, int64_t dim, int64_t part,
                       int64_t parts) {
  dim_ = dim;
  firsts_.clear();
  others_.clear();
  only_ = nullptr;
  if (ranks.size() == 1) {
    const int64_t begin = ranks[0].keys.size() * part / parts;
    const int64_t end = ranks[0].keys.size() * (part + 1) / parts;
    keys_ = ranks[0].keys.subspan(begin, end - begin);
    only_ = ranks[0].gradients + begin * dim;
    only_ranks_ = ranks[0].ranks == nullptr ? nullptr : ranks[0].ranks + begin;
    return;
  }
  int64_t most = 0;
  for (const RankGradients& rank : ranks) {
    if (parts == 1) most += rank.keys.size();
    for (int64_t i = 0; parts > 1 && i < rank.keys.size(); ++i) {
      most += PartOf(rank.keys[i], parts) == part;
    }
  }
  unique_.Reset(most);
  for (const RankGradients& rank : ranks) {
    for (int64_t i = 0; i < rank.keys.size(); ++i) {
      const int64_t key = rank.keys[i];
      if (parts > 1 && PartOf(key, parts) != part) continue;
      Add(key, rank.gradients + i * dim, static_cast<uint32_t>(rank.host),
          rank.ranks == nullptr ? 1 : rank.ranks[i]);
    }
  }
  keys_ = unique_.keys();
}

void MergedKeys::Add(int64_t key, const float* gradient, uint32_t host, uint32_t ranks) {
  const auto number = static_cast<size_t>(unique_.Number(key));
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

}  // namespace tfhybrid
