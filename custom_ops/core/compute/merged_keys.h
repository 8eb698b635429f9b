// MergedKeys: the distinct keys of all ranks for a table, and the sum of each key's gradients over
// the ranks.
//
// Gradients stay where the ranks wrote them. Sum() adds them up when the row is updated, so nothing
// is copied for keys that only one rank has. Gradients are summed by local rank within a host, then
// by host. Keys are in order of first occurrence, rank by rank.
//
// The keys may be merged in parts (core/compute/key_parts.h), on as many threads. The result
// depends only on the messages and on the number of parts, so a merge can be repeated after a
// crash. Reusable scratch; Merge() is not thread-safe, reading is.
#ifndef TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
#define TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_

#include <cstdint>
#include <vector>

#include "core/compute/key_parts.h"
#include "core/compute/rank_gradients.h"
#include "core/compute/unique_keys.h"
#include "core/util/span.h"

namespace tfhybrid {

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
  UniqueKeys unique_;
  std::vector<First> firsts_;
  std::vector<Other> others_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_MERGED_KEYS_H_
