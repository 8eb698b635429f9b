// OwnerExchange: what an engine exchanges with the other hosts and nodes that own rows of sharded
// tables: the rows of lookups, and the steps of updates. (The gradients that leaders of replicated
// tables exchange, with exchange="owner" too, are core/exchange/host_exchange.h's.)
//
// Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_OWNER_EXCHANGE_H_
#define TFHYBRID_CORE_ENGINE_OWNER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/engine/applying_thread.h"
#include "core/engine/meetings.h"
#include "core/engine/row_service.h"
#include "core/engine/sharded_step.h"
#include "core/engine/split_batches.h"
#include "core/exchange/row_frames.h"

namespace tfhybrid {

// Rows of a table in the order of another host.
struct ScannedRows {
  int64_t table_rows;
  int64_t table_bytes;  // in shared memory
  std::vector<int64_t> keys;
  std::vector<float> embeddings;
};

class OwnerExchange {
 public:
  // All arguments outlive this object.
  OwnerExchange(const PlacedTables* tables, OwnerLinks* links, SplitBatches* batches,
                HostPasses* passes, ApplyingThread* applying, Meetings* meetings)
      : tables_(tables),
        links_(links),
        batches_(batches),
        passes_(passes),
        applying_(applying),
        meetings_(meetings),
        service_(tables, &batches->keys(), passes) {}

  // The connections to other hosts, and the service that answers those of other hosts.
  OwnerLinks& links() { return *links_; }
  RowService& service() { return service_; }

  // The rows that the features of sharded tables need, as of FetchedRows::Fetch(). Waits for their
  // owners, which is recorded in the meetings.
  Result<std::shared_ptr<const FetchedRows>> Fetch(const std::vector<FeatureRead>& features,
                                                   const ParallelFor& parallel_for);
  // Rows [first, first + count) of a table in the order of another host, or as many as exist.
  Result<ScannedRows> Scan(int64_t host, const AskedRows& rows);

  // The leader's: a step of an update with sharded tables. On the update's thread.
  void Step(const UpdateInUse& update, const StepNumbers& numbers) {
    Finish(update, Agree(update, &numbers));
  }
  // An embedding node's: all steps that others bring, until they are gone. On the update's thread.
  void ServeSteps(const UpdateInUse& update) {
    while (Finish(update, Agree(update, nullptr))) continue;
  }

 private:
  // `numbers`: null on an embedding node.
  Result<ShardedStep::Agreed> Agree(const UpdateInUse& update, const StepNumbers* numbers);
  // Commits, or tells all who wait why nothing will come; whether it commits.
  bool Finish(const UpdateInUse& update, Result<ShardedStep::Agreed> agreed);

  const PlacedTables* const tables_;
  OwnerLinks* const links_;
  SplitBatches* const batches_;
  HostPasses* const passes_;
  ApplyingThread* const applying_;
  Meetings* const meetings_;
  RowService service_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_OWNER_EXCHANGE_H_
