// GradientPacker: a rank's gradients of one step, each key once, as a message.
#ifndef TFHYBRID_CORE_UPDATE_GRADIENT_PACKER_H_
#define TFHYBRID_CORE_UPDATE_GRADIENT_PACKER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/update/gradient_message.h"
#include "core/util/parallel.h"
#include "core/util/span.h"

namespace tfhybrid {

// Reusable scratch; not thread-safe.
class GradientPacker {
 public:
  // By table, its batches in order; `parallel_for` runs tables side by side. Returns the number of
  // distinct keys of each table. REQUIRES: gradients that are distinct lie in an array.
  const std::vector<int64_t>& Number(std::vector<std::vector<KeyGradients>> tables,
                                     const ParallelFor& parallel_for);
  // Writes the keys of what was numbered last, and their sums times `factor`.
  void Fill(const MessageSchema& schema, const MessageBuilder& message, float factor,
            const ParallelFor& parallel_for) const;

 private:
  struct TableBatches {
    std::vector<KeyGradients> batches;
    GradientSum sum;  // unused where keys are distinct
    bool distinct() const { return batches.size() == 1 && batches.front().distinct; }
  };

  void Copy(const MessageSchema& schema, const MessageBuilder& message, float factor,
            const ParallelFor& parallel_for) const;

  std::vector<TableBatches> tables_;
  std::vector<int64_t> counts_;
  int64_t cost_ = 0;  // of a table, in nanoseconds
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_GRADIENT_PACKER_H_
