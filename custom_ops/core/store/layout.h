// The bytes of every segment: plain old data only, fixed widths, little-endian.
// docs/store_format.md tells the same in prose. A change here raises kFormatVersion.
//
// A store is a directory; a table is these files in it (NAME is the table's name, %-encoded):
//
//   NAME.table      TableSegment: what the table is, and the counters that all read
//   NAME.index.G    IndexSegment of generation G: key -> row
//   NAME.rows.C     ChunkSegment: keys and embeddings of chunk C
//   NAME.state.C    ChunkSegment: optimizer state of chunk C; only the leader maps it
//   NAME.history.C  ChunkSegment: histories of the rows of chunk C, likewise
//
// One writer, the leader. Everything that changes is written by it alone; the fields marked
// `atomic` are read by other processes while it writes, with the acquire load that pairs with its
// release store.
#ifndef TFHYBRID_CORE_STORE_LAYOUT_H_
#define TFHYBRID_CORE_STORE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/compute/initializer.h"
#include "core/compute/optimizer.h"
#include "core/compute/row_policy.h"

namespace tfhybrid {

inline constexpr char kMagic[8] = {'T', 'F', 'H', 'Y', 'B', 'R', 'I', 'D'};
inline constexpr uint32_t kFormatVersion = 11;
inline constexpr int64_t kPageBytes = 4096;
inline constexpr int64_t kMaxTableName = 128;
inline constexpr int64_t kMaxFailure = 512;

enum class SegmentKind : uint32_t {
  kStore = 1,
  kTable = 2,
  kIndex = 3,
  kRows = 4,
  kState = 5,
  kMailbox = 6,   // core/update/mailbox.h
  kMessages = 7,  // its messages
  kJournal = 8,   // core/update/update_journal.h
  kKept = 9,      // core/store/kept_state.h
  kHistory = 10,
  kTier = 11,   // core/store/row_tier.h
  kCache = 12,  // likewise
  kBell = 13,   // core/passes/pass_file.h
  kPass = 14,   // likewise
};

// Opens every segment. `crc` covers this struct with crc = 0 and, in a TableSegment, the TableShape
// behind it.
struct SegmentHeader {
  char magic[8];
  uint32_t format;
  uint32_t kind;   // SegmentKind
  uint64_t token;  // of the store: a file that strayed in from another job does not match
  uint64_t file_bytes;
  uint64_t ordinal;  // index: generation; chunk: number
  uint32_t uid;
  uint32_t crc;
};
static_assert(sizeof(SegmentHeader) == 48);

// Which of a table's rows this host has: all (owners is 1), or those of its own slots, or all or
// none of a table that lies whole on one of the hosts.
struct TableShard {
  uint32_t owners = 1;  // hosts
  uint32_t whole = 0;   // not 0: host `owner` has all rows
  uint32_t owner = 0;
  uint32_t unused = 0;

  bool operator==(const TableShard& other) const {
    return owners == other.owners && whole == other.whole && owner == other.owner;
  }
};

// Constant over a table's life.
struct TableShape {
  char name[kMaxTableName];  // zero-terminated unless it fills the array
  uint64_t seed;
  double initializer_a;
  double initializer_b;
  uint32_t initializer;  // InitializerKind
  uint32_t dim;
  uint32_t first_chunk_log2;  // rows of chunks 0 and 1
  uint32_t chunk_log2;        // rows of a full chunk
  RowPolicy policy;
  TableShard shard;
};
static_assert(sizeof(RowPolicy) == 72 && std::is_trivially_copyable_v<RowPolicy>);
static_assert(sizeof(TableShape) == 256);

inline Initializer InitializerOf(const TableShape& shape) {
  return {static_cast<InitializerKind>(shape.initializer), shape.initializer_a,
          shape.initializer_b};
}

// A row that is being removed, by a leader that may be killed: the last row takes its place.
struct Removal {
  uint64_t armed;  // atomic: not 0 while it is under way
  int64_t key;     // of the row that goes
  uint64_t row;    // its number
  uint64_t last;   // that of the last row
};

// Each on a cache line of its own: `version` is waited for, the rest is read at the start of every
// lookup.
struct TableCounters {
  alignas(64) uint64_t version;  // atomic: updates applied; a futex watches it
  uint64_t sequence;             // atomic: odd while rows change (core/store/row_sequence.h)
  uint64_t moves;                // atomic: raised after rows have got other numbers, or none
  alignas(64) uint64_t rows;     // atomic: rows that are fully written
  uint64_t chunks;               // atomic: chunks that can be mapped
  uint64_t index_generation;     // atomic: the index that can be mapped
  // With weight decay embeddings lie divided by `decay`; what a key without a row reads is
  // multiplied by both. Written before the version that they belong to; 1 without decay.
  double decay;          // atomic
  double initial_decay;  // atomic
  float clip_factor;     // atomic: of the last update's gradients
  int64_t event_time;    // atomic: the latest that an update came with
  uint64_t evicted;      // atomic: rows removed by updates
  Removal removal;
  alignas(64)
      uint64_t failed;  // atomic: 0, or the StatusCode of an update that failed; `failure` says why
  char failure[kMaxFailure];
  uint64_t loading;  // not 0 while rows are overwritten from elsewhere: no table if its leader dies
};

inline constexpr uint64_t kReplaced = UINT64_MAX;

struct TableSegment {
  SegmentHeader header;
  TableShape shape;
  OptimizerConfig optimizer;  // written by the leader, when it is known; kNone until then
  // The version at which the optimizer began: its steps count from there. kReplaced while the table
  // has lost one optimizer and not got the next.
  uint64_t optimizer_start;
  alignas(64) TableCounters counters;
};
static_assert(sizeof(OptimizerConfig) == 104 && std::is_trivially_copyable_v<OptimizerConfig>);
static_assert(offsetof(TableSegment, counters) == 448);
static_assert(sizeof(TableSegment) <= kPageBytes);

struct IndexSegment {
  SegmentHeader header;
  uint64_t slots;  // they start at kIndexSlotsOffset: of KeyIndex, or CompactIndex with FileTier
  uint64_t reserved;
};
inline constexpr int64_t kIndexSlotsOffset = 64;
static_assert(sizeof(IndexSegment) == kIndexSlotsOffset);

// Behind a page of header: in NAME.rows.C first the keys (int64 [rows]), then, on a cache line, the
// embeddings (float [rows, dim]); in NAME.state.C the optimizer state (float [rows, floats]); in
// NAME.history.C RowHistory [rows].
struct ChunkSegment {
  SegmentHeader header;
  uint64_t rows;
  uint64_t row_floats;  // dim, or those of the optimizer state, or of a history
};
static_assert(sizeof(ChunkSegment) == 64);
inline constexpr int64_t kHistoryFloats = sizeof(RowHistory) / sizeof(float);

// Whoever reads `value` with an acquire load sees all that was written before it.
template <typename Value>
void StoreRelease(Value* at, Value value) {
  __atomic_store(at, &value, __ATOMIC_RELEASE);
}

template <typename Value>
Value LoadAcquire(const Value& at) {
  Value value;
  __atomic_load(&at, &value, __ATOMIC_ACQUIRE);
  return value;
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_LAYOUT_H_
