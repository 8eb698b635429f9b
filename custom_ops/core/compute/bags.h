// Bags: lists of keys whose rows are combined into one embedding.
//
//     sum    w_1 r_1 + ... + w_n r_n
//     mean   the sum, divided by w_1 + ... + w_n
//     sqrtn  the sum, divided by sqrt(w_1^2 + ... + w_n^2)
//
// This equals tf.nn.embedding_lookup_sparse. The result is zero for an empty bag, and if the
// divisor is 0.
#ifndef TFHYBRID_CORE_COMPUTE_BAGS_H_
#define TFHYBRID_CORE_COMPUTE_BAGS_H_

#include <cstdint>
#include <string>

#include "core/util/row_layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

enum class Combiner { kNone, kSum, kMean, kSqrtn };

// From "", "sum", "mean" or "sqrtn".
Result<Combiner> ParseCombiner(const std::string& name);

// The division of keys into bags. Valid if CheckBags() returns Ok.
struct Bags {
  Combiner combiner = Combiner::kNone;
  Span<const int64_t> splits = {};  // bag b has keys splits[b] to splits[b + 1] - 1
  const float* weights = nullptr;   // of each key; null: 1

  int64_t size() const { return splits.size() - 1; }
  float Weight(int64_t key) const { return weights == nullptr ? 1.0f : weights[key]; }
  // The divisor of the weighted sum of a bag's rows.
  float Divisor(int64_t bag) const;
  // The factor from a bag's gradient to a row's, including the divisor; 0 if the divisor is 0.
  float Scale(int64_t key, float divisor) const {
    return divisor == 0.0f ? 0.0f : Weight(key) / divisor;
  }
};

// Checks the splits: they must begin at 0, never decrease, and end at the number of keys.
Status CheckBags(const Bags& bags, int64_t keys);

// Takes the rows of consecutive bags one by one, and writes each bag's embedding.
class BagCombiner {
 public:
  // Bags [first, last), whose embeddings go where `out` goes.
  BagCombiner(const Bags& bags, int64_t first, int64_t last, int64_t dim, RowCursor<float> out);
  // The row of the next key.
  void Add(const float* row);

 private:
  // Moves to the next bag that has keys, and writes zeros for empty bags on the way.
  void Open();

  const Bags bags_;
  const int64_t last_;
  const int64_t dim_;
  RowCursor<float> out_;
  int64_t bag_;
  int64_t key_;
  float* embedding_ = nullptr;  // of the bag in hand
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_BAGS_H_
