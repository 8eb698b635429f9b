#include "core/compute/bags.h"

#include <algorithm>
#include <cmath>

#include "core/util/simd.h"

namespace tfhybrid {
namespace {

// From zero, as TensorFlow's sums: of negative zeros the sum is zero.
TFHYBRID_SIMD void BeginSum(const float* row, int64_t dim, float* sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] = 0.0f + row[column];
}

TFHYBRID_SIMD void AddRow(const float* row, int64_t dim, float* sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] += row[column];
}

TFHYBRID_SIMD void AddWeightedRow(const float* row, float weight, int64_t dim, float* sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] += weight * row[column];
}

TFHYBRID_SIMD void DivideRow(float divisor, int64_t dim, float* sum) {
  for (int64_t column = 0; column < dim; ++column) sum[column] /= divisor;
}

}  // namespace

Result<Combiner> ParseCombiner(const std::string& name) {
  if (name.empty()) return Combiner::kNone;
  if (name == "sum") return Combiner::kSum;
  if (name == "mean") return Combiner::kMean;
  if (name == "sqrtn") return Combiner::kSqrtn;
  return Status::Error(StatusCode::kInvalidArgument,
                       "A combiner is sum, mean or sqrtn, or none. Received: '", name, "'");
}

float Bags::Divisor(int64_t bag) const {
  if (combiner == Combiner::kSum) return 1.0f;
  const int64_t first = splits[bag], last = splits[bag + 1];
  float total = 0.0f;
  if (weights == nullptr) {
    total = static_cast<float>(last - first);
  } else {
    for (int64_t key = first; key < last; ++key) {
      total += combiner == Combiner::kMean ? weights[key] : weights[key] * weights[key];
    }
  }
  return combiner == Combiner::kMean ? total : std::sqrt(total);
}

Status CheckBags(const Bags& bags, int64_t keys) {
  bool fits = bags.splits.size() > 0 && bags.splits[0] == 0 && bags.splits[bags.size()] == keys;
  for (int64_t bag = 0; fits && bag < bags.size(); ++bag) {
    fits = bags.splits[bag] <= bags.splits[bag + 1];
  }
  if (fits) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument,
                       "The splits of bags begin at 0, never fall and end at the number of keys, ",
                       keys, ". Received: ", bags.splits.size(), " splits",
                       bags.splits.size() > 0 ? " that end at " : "",
                       bags.splits.size() > 0 ? std::to_string(bags.splits[bags.size()]) : "");
}

BagCombiner::BagCombiner(const Bags& bags, int64_t first, int64_t last, int64_t dim,
                         RowCursor<float> out)
    : bags_(bags), last_(last), dim_(dim), out_(out), bag_(first), key_(bags.splits[first]) {
  Open();
}

void BagCombiner::Open() {
  for (; bag_ < last_; ++bag_) {
    embedding_ = out_.Next();
    if (bags_.splits[bag_] < bags_.splits[bag_ + 1]) return;
    std::fill_n(embedding_, dim_, 0.0f);
  }
}

void BagCombiner::Add(const float* row) {
  const bool first = key_ == bags_.splits[bag_];
  if (bags_.weights != nullptr) {
    if (first) std::fill_n(embedding_, dim_, 0.0f);
    AddWeightedRow(row, bags_.weights[key_], dim_, embedding_);
  } else if (first) {
    BeginSum(row, dim_, embedding_);
  } else {
    AddRow(row, dim_, embedding_);
  }
  if (++key_ < bags_.splits[bag_ + 1]) return;
  const float divisor = bags_.Divisor(bag_);
  if (divisor == 0.0f) {
    std::fill_n(embedding_, dim_, 0.0f);
  } else if (divisor != 1.0f) {
    DivideRow(divisor, dim_, embedding_);
  }
  ++bag_;
  Open();
}

}  // namespace tfhybrid
