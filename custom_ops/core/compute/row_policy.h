// Which keys have a row: those that were updated often enough, until a rule evicts them.
//
// This depends only on keys, steps and event time, never on where a row is stored or on wall-clock
// time. So replicas stay equal, and a job that is resumed, or whose checkpoint is restored with
// another number of ranks, evicts the same keys as the original job would.
//
// Keys are examined in slices: the update that leads to version v examines the keys whose hash is v
// modulo the number of slices. A key of the update itself always stays.
//
// Thread-safe: no state.
#ifndef TFHYBRID_CORE_COMPUTE_ROW_POLICY_H_
#define TFHYBRID_CORE_COMPUTE_ROW_POLICY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "core/util/status.h"

namespace tfhybrid {

// No event time is known.
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

enum class PolicyKind : uint32_t {
  kNone = 0,     // a key has a row from its first update on, for ever; there are no histories
  kRows = 1,     // the fields of RowPolicy decide
  kWaiting = 2,  // for the table that counts the keys that wait for admission to another table
};

// Constant over a table's life; stored in segments. A rule whose number is 0 is off.
struct RowPolicy {
  PolicyKind kind = PolicyKind::kNone;
  uint32_t admission = 0;    // updates in which a key occurs before it gets a row; 0 and 1: none
  uint32_t slices_log2 = 0;  // each key is examined once in 2^slices_log2 updates
  // Not 0: a slice that is too full keeps its frequent keys; 0: its recent ones.
  uint32_t frequent_stay = 0;
  // A key is evicted
  int64_t unseen_steps = 0;    // after so many steps without an update
  int64_t unseen_time = 0;     // after so much event time without an update
  int64_t half_life = 0;       // (its frequency halves at each multiple of so many steps)
  double min_frequency = 0.0;  // if its frequency is below this
  double min_norm = 0.0;       // if the norm of its embedding is below this
  int64_t max_rows = 0;        // if its slice has more rows than an equal part of this
  int64_t waiting_steps = 0;   // a waiting key is forgotten after so many steps without an update
};

bool operator==(const RowPolicy& a, const RowPolicy& b);

Status ValidatePolicy(const RowPolicy& policy);

// Whether it ever evicts.
bool HasRule(const RowPolicy& policy);

// A row's history, which is a part of the row like its optimizer state.
struct RowHistory {
  float frequency = 0.0f;       // updates, those before each multiple of the half-life worth half
  uint32_t last_step = 0;       // the last update, modulo 2^32
  int64_t last_time = kNoTime;  // event time then
};
static_assert(sizeof(RowHistory) == 16);

// The current time of a table.
struct Moment {
  uint64_t step = 0;  // the version that an update leads to
  int64_t time = kNoTime;
};

// Steps since a row was updated.
inline uint32_t Age(const RowHistory& history, const Moment& now) {
  return static_cast<uint32_t>(now.step) - history.last_step;
}

// A row's current frequency.
float Frequency(const RowPolicy& policy, const RowHistory& history, const Moment& now);

// Counts an update.
void Touch(const RowPolicy& policy, const Moment& now, RowHistory* history);

// In how many updates a waiting key occurred, including the one that leads to `step`.
float CountWith(const RowHistory& history, uint64_t step);

// Whether a rule other than max_rows evicts the row. `squares` is the sum of squares of its
// embedding.
bool IsExpired(const RowPolicy& policy, const RowHistory& history, double squares,
               const Moment& now);

// A row of a slice.
struct SliceRow {
  int64_t key;
  int64_t row;
  RowHistory history;
};

// Moves the rows of a slice that exceed its part of max_rows to the front, and returns their
// number. REQUIRES: policy.max_rows > 0.
int64_t FindSurplus(const RowPolicy& policy, const Moment& now, std::vector<SliceRow>* rows);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_COMPUTE_ROW_POLICY_H_
