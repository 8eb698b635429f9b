// ResolvedMessages: the messages of hosts whose trainers use key handles, with the keys that these
// stand for (core/exchange/batch_keys.h).
//
// Gradients of a key are summed as its host would have done it: by batch within a rank, then by
// rank. They stay where they came until Fill() sums them where they go.
//
// Reusable scratch; not thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_RESOLVED_MESSAGES_H_
#define TFHYBRID_CORE_EXCHANGE_RESOLVED_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "core/compute/merged_keys.h"
#include "core/exchange/batch_keys.h"
#include "core/update/gradient_message.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class ResolvedMessages {
 public:
  // Resolves messages, which stay where they are until Fill() is done. Batches of one update must
  // have the same staleness. REQUIRES: none of the messages is a failure.
  Status Resolve(const BatchKeys& held, const MessageSchema& schema,
                 const std::vector<GradientMessage>& messages, const ParallelFor& parallel_for);
  // Words of the resolved messages, end to end.
  int64_t Words(const MessageSchema& schema) const;
  // Writes them. REQUIRES: schema and messages are those that were resolved.
  void Fill(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
            Span<int64_t> words, const ParallelFor& parallel_for) const;

 private:
  // A table of a message.
  struct Table {
    std::vector<int64_t> keys;    // of each key handle
    std::vector<uint16_t> ranks;  // likewise
    std::vector<float> widened;   // gradients that came as bfloat16
    MergedKeys merged;
  };

  // `first`: a batch of the same update; null where there are no key handles.
  static Status ResolveTable(const BatchKeys& held, const MessageSchema& schema,
                             const GradientMessage& message, size_t table,
                             const BatchKeys::Batch* first, Table* of);
  static void FillTable(const Table& from, int64_t dim, int64_t table, const MessageBuilder& to);
  // Number of keys of each table of a message.
  std::vector<int64_t> CountsOf(const MessageSchema& schema, size_t message) const;

  std::vector<Table> tables_;  // of all messages, message by message
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_RESOLVED_MESSAGES_H_
