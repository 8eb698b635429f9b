// VersionRead: reads embeddings of several tables at one common update, during training.
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
#include <optional>
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
  float* embeddings;           // [keys, dim]
  uint8_t* has_row = nullptr;  // as in UnseenKeys
};

// Makes the words of the marks of all keys (core/exchange/row_frames.h), and has the reads write
// them there.
std::vector<int64_t> MarkReads(std::vector<TableRead>* reads);

// Returns the version of each table that was read. kDeadlineExceeded after about `timeout_ms`; for
// `check_alive` see TableReader::WaitVersion().
Result<std::vector<uint64_t>> ReadVersion(const std::vector<TableRead>& reads, int timeout_ms,
                                          const std::function<Status()>& check_alive);

// Waits for the versions likewise, and then lets `copy` read rows of the tables once, whenever it
// wants. Returns their versions; or nothing if rows changed meanwhile, and what was read is torn.
// `copy` is not called at all if they are just being changed; it may ask whether they have been so
// far, to end sooner.
using CopyRows = std::function<Status(const std::function<bool()>& have_changed)>;
Result<std::optional<std::vector<uint64_t>>> TryReadVersion(
    const std::vector<TableRead>& reads, const std::function<Status()>& check_alive,
    const CopyRows& copy);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_VERSION_READ_H_
