#include "core/compute/row_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr uint32_t kMaxSlicesLog2 = 20;
constexpr uint32_t kMaxAdmission = 1u << 20;
// Half the span of Age(): what is older is examined long before it seems young again.
constexpr int64_t kMaxSteps = int64_t{1} << 31;
// A frequency is 0 after so many halvings.
constexpr uint64_t kMaxHalvings = 200;

bool IsRate(double value) { return std::isfinite(value) && value >= 0.0; }

}  // namespace

bool operator==(const RowPolicy& a, const RowPolicy& b) {
  const auto all = [](const RowPolicy& p) {
    return std::tie(p.kind, p.admission, p.slices_log2, p.frequent_stay, p.unseen_steps,
                    p.unseen_time, p.half_life, p.min_frequency, p.min_norm, p.max_rows,
                    p.waiting_steps);
  };
  return all(a) == all(b);
}

bool HasRule(const RowPolicy& policy) {
  return policy.unseen_steps > 0 || policy.unseen_time > 0 || policy.min_frequency > 0.0 ||
         policy.min_norm > 0.0 || policy.max_rows > 0;
}

Status ValidatePolicy(const RowPolicy& policy) {
  const bool numbers =
      policy.kind <= PolicyKind::kWaiting && policy.slices_log2 <= kMaxSlicesLog2 &&
      policy.admission <= kMaxAdmission && policy.unseen_steps >= 0 &&
      policy.unseen_steps < kMaxSteps && policy.waiting_steps >= 0 &&
      policy.waiting_steps < kMaxSteps && policy.unseen_time >= 0 && policy.half_life >= 0 &&
      IsRate(policy.min_frequency) && IsRate(policy.min_norm) && policy.max_rows >= 0;
  const bool whole =
      policy.kind != PolicyKind::kNone || (policy.admission <= 1 && !HasRule(policy));
  if (numbers && whole) return Status::Ok();
  return Status::Error(
      StatusCode::kInvalidArgument,
      "A policy of rows has up to 2^20 slices, admission after at most 2^20 "
      "updates, fewer than 2^31 steps, nothing negative, and a history. Received: "
      "slices_log2=",
      policy.slices_log2, ", admission=", policy.admission, ", unseen_steps=", policy.unseen_steps,
      ", waiting_steps=", policy.waiting_steps, ", unseen_time=", policy.unseen_time,
      ", half_life=", policy.half_life, ", min_frequency=", policy.min_frequency,
      ", min_norm=", policy.min_norm, ", max_rows=", policy.max_rows,
      ", kind=", static_cast<uint32_t>(policy.kind));
}

float Frequency(const RowPolicy& policy, const RowHistory& history, const Moment& now) {
  if (policy.half_life == 0) return history.frequency;
  const auto half_life = static_cast<uint64_t>(policy.half_life);
  const uint64_t last = now.step - Age(history, now);
  const uint64_t halvings = now.step / half_life - last / half_life;
  // Powers of two: no bit depends on when it was asked for.
  return std::ldexp(history.frequency, -static_cast<int>(std::min(halvings, kMaxHalvings)));
}

void Touch(const RowPolicy& policy, const Moment& now, RowHistory* history) {
  history->frequency = Frequency(policy, *history, now) + 1.0f;
  history->last_step = static_cast<uint32_t>(now.step);
  history->last_time = now.time;
}

float CountWith(const RowHistory& history, uint64_t step) {
  const bool counted = history.last_step == static_cast<uint32_t>(step);
  return counted ? history.frequency : history.frequency + 1.0f;
}

bool IsExpired(const RowPolicy& policy, const RowHistory& history, double squares,
               const Moment& now) {
  const int64_t age = Age(history, now);
  if (age == 0) return false;
  if (policy.unseen_steps > 0 && age >= policy.unseen_steps) return true;
  if (policy.unseen_time > 0 && history.last_time != kNoTime && now.time > history.last_time) {
    // Unsigned: the difference of any two of them fits.
    const uint64_t unseen =
        static_cast<uint64_t>(now.time) - static_cast<uint64_t>(history.last_time);
    if (unseen >= static_cast<uint64_t>(policy.unseen_time)) return true;
  }
  if (policy.min_frequency > 0.0 && Frequency(policy, history, now) < policy.min_frequency) {
    return true;
  }
  return policy.min_norm > 0.0 && squares < policy.min_norm * policy.min_norm;
}

int64_t FindSurplus(const RowPolicy& policy, const Moment& now, std::vector<SliceRow>* rows) {
  const int64_t limit = policy.max_rows >> policy.slices_log2;
  const auto count = static_cast<int64_t>(rows->size());
  if (count <= limit) return 0;
  const bool frequent_stay = policy.frequent_stay != 0;
  // The first are the first to go. Hashes tell all keys apart.
  const auto order = [&](const SliceRow& row) {
    const double frequency = Frequency(policy, row.history, now);
    const double youth = -static_cast<double>(Age(row.history, now));
    const uint64_t hash = Mix64(static_cast<uint64_t>(row.key));
    return frequent_stay ? std::make_tuple(frequency, youth, hash)
                         : std::make_tuple(youth, frequency, hash);
  };
  const auto before = [&](const SliceRow& a, const SliceRow& b) { return order(a) < order(b); };
  std::nth_element(rows->begin(), rows->begin() + (count - limit), rows->end(), before);
  // Keys of the update itself are the last of the recent; of the frequent they may be the first.
  const auto stay =
      std::stable_partition(rows->begin(), rows->begin() + (count - limit),
                            [&](const SliceRow& row) { return Age(row.history, now) != 0; });
  return stay - rows->begin();
}

}  // namespace tfhybrid
