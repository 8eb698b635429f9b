// VersionRead: embeddings of several tables as they all were after one update, read beside updates.
//
// A lookup of a training step needs none of this: it waits for the update before, and the next one
// waits for it (docs/concurrency.md). Whoever serves rows meanwhile does: a sequence lock per table
// (core/store/row_sequence.h) tells whether rows changed while they were copied; then they are
// copied once more. So that steady updates cannot starve a reader, one that has failed twice takes
// the tables' locks if it is in the leader's process, and else sleeps until the change has ended
// and tries at once.
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

// What is read of a table.
struct TableRead {
  std::shared_ptr<OpenTable> table;
  uint64_t min_version;  // or a later one
  Span<const int64_t> keys;
  float* embeddings;  // [keys, dim]
};

// Returns the version of each table that was read. kDeadlineExceeded after about `timeout_ms`;
// `check_alive` as of TableReader::WaitVersion().
Result<std::vector<uint64_t>> ReadVersion(const std::vector<TableRead>& reads, int timeout_ms,
                                          const std::function<Status()>& check_alive);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_VERSION_READ_H_
