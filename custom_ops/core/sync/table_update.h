// TableUpdate: the leader's share of a step: merge the messages of all ranks, reduce, apply once,
// publish.
//
// Order of summation: by local rank within a host, then by host, whatever way the messages came; so
// every host and every sync mode gets the same bits. All tables of a step are prepared before any
// is changed: if one cannot grow, none is updated. Telling the waiting ranks is the caller's.
//
// Holds the scratch of its steps. Not thread-safe; one per update operation.
#ifndef TFHYBRID_CORE_SYNC_TABLE_UPDATE_H_
#define TFHYBRID_CORE_SYNC_TABLE_UPDATE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/gradient_merger.h"
#include "core/store/table_writer.h"
#include "core/sync/gradient_message.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// What the sum of a key's gradients over the ranks is divided by.
enum class Reduction {
  kFrequency,  // the number of ranks in which the key occurred
  kSum,        // 1
  kMean,       // the number of ranks
};

Result<Reduction> ParseReduction(const std::string& name);

class TableUpdate {
 public:
  // `hosts[r]` is the host of rank r; ranks of a host follow each other.
  TableUpdate(std::vector<int64_t> hosts, Reduction reduction)
      : hosts_(std::move(hosts)), reduction_(reduction) {}

  // On failure every table is as it was. REQUIRES: messages, learning_rates and tables have one
  // entry per rank, table and table.
  Status Run(const std::vector<GradientMessage>& messages, Span<const float> learning_rates,
             const std::vector<TableWriter*>& tables, const ParallelFor& parallel_for);

 private:
  // What one table needs from merge to apply.
  struct Work {
    GradientMerger host;    // the ranks of one host
    GradientMerger merged;  // all
    RowSet rows;
    std::vector<float> scales;
    Status prepared;
  };

  void Merge(const std::vector<GradientMessage>& messages, size_t table, int64_t dim, Work* work);
  float Scale(uint32_t count) const;
  void Apply(Span<const float> learning_rates, const std::vector<TableWriter*>& tables,
             const ParallelFor& parallel_for);

  const std::vector<int64_t> hosts_;
  const Reduction reduction_;
  std::vector<Work> work_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SYNC_TABLE_UPDATE_H_
