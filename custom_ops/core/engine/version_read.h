// VersionRead: reads embeddings of several tables at one common update, while updates continue.
//
// A lookup of a training step does not need it: it waits for the previous update, and the next
// update waits for it (docs/concurrency.md). Serving rows during training does: a sequence lock per
// table (core/store/row_sequence.h) shows whether rows changed while they were copied; then they
// are copied again. Steady updates must not starve a reader. After two failures it takes the
// tables' locks if it is in the leader's process; otherwise it sleeps until the change has ended,
// and retries at once.
#ifndef TFHYBRID_CORE_ENGINE_VERSION_READ_H_
#define TFHYBRID_CORE_ENGINE_VERSION_READ_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/store/store.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// What to read from a table.
struct TableRead {
  std::shared_ptr<OpenTable> table;
  uint64_t min_version;  // or a later one
  Span<const int64_t> keys;
  float* embeddings;  // [keys, dim]
};

// Returns the version of each table that was read. kDeadlineExceeded after about `timeout_ms`; for
// `check_alive` see TableReader::WaitVersion().
Result<std::vector<uint64_t>> ReadVersion(const std::vector<TableRead>& reads, int timeout_ms,
                                          const std::function<Status()>& check_alive);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_VERSION_READ_H_
