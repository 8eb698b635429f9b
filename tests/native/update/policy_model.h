// Which keys have a row, told plainly: every update of every key is remembered.
#ifndef TFHYBRID_TESTS_NATIVE_UPDATE_POLICY_MODEL_H_
#define TFHYBRID_TESTS_NATIVE_UPDATE_POLICY_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/compute/row_policy.h"
#include "core/util/hash.h"

namespace tfhybrid {

class PolicyModel {
 public:
  // The steps of a key's updates, and the event time of the last.
  struct Past {
    std::vector<uint64_t> steps;
    int64_t time = kNoTime;
  };

  explicit PolicyModel(const RowPolicy& policy) : policy_(policy) {}

  const std::map<int64_t, Past>& rows() const { return rows_; }
  const std::map<int64_t, Past>& waiting() const { return waiting_; }

  // An update with these keys begins. Returns those that it updates.
  std::set<int64_t> Begin(const std::set<int64_t>& keys, const Moment& now) {
    std::set<int64_t> updated;
    for (const int64_t key : keys) {
      if (rows_.count(key) == 0) {
        Past& past = waiting_[key];
        past.steps.push_back(now.step);
        if (past.steps.size() < policy_.admission) continue;
        // All of its updates are worth as much as this one.
        rows_[key].steps.assign(std::max<size_t>(1, policy_.admission), now.step);
        waiting_.erase(key);
      } else {
        rows_[key].steps.push_back(now.step);
      }
      rows_[key].time = now.time;
      updated.insert(key);
    }
    return updated;
  }

  // It ends. Returns the keys whose rows are evicted. `norm`: of a key's embedding.
  std::vector<int64_t> End(const Moment& now, const std::function<double(int64_t)>& norm) {
    std::vector<int64_t> evicted;
    std::vector<std::tuple<double, double, uint64_t, int64_t>> staying;
    for (const auto& [key, past] : rows_) {
      if (!Examined(key, now)) continue;
      const auto age = static_cast<double>(now.step - past.steps.back());
      if (Expired(past, norm(key), now)) {
        evicted.push_back(key);
      } else if (policy_.frequent_stay != 0) {
        staying.emplace_back(Frequency(past, now), -age, Mix64(static_cast<uint64_t>(key)), key);
      } else {
        staying.emplace_back(-age, Frequency(past, now), Mix64(static_cast<uint64_t>(key)), key);
      }
    }
    std::sort(staying.begin(), staying.end());
    const int64_t limit = policy_.max_rows >> policy_.slices_log2;
    for (int64_t i = 0; policy_.max_rows > 0 && i < static_cast<int64_t>(staying.size()) - limit;
         ++i) {
      const int64_t key = std::get<3>(staying[static_cast<size_t>(i)]);
      if (rows_[key].steps.back() != now.step) evicted.push_back(key);
    }
    for (const int64_t key : evicted) rows_.erase(key);
    ForgetWaiting(now);
    return evicted;
  }

  double Frequency(const Past& past, const Moment& now) const {
    double sum = 0.0;
    for (const uint64_t step : past.steps) {
      const uint64_t halvings = policy_.half_life == 0
                                    ? 0
                                    : now.step / static_cast<uint64_t>(policy_.half_life) -
                                          step / static_cast<uint64_t>(policy_.half_life);
      sum += std::pow(0.5, static_cast<double>(halvings));
    }
    return sum;
  }

 private:
  bool Examined(int64_t key, const Moment& now) const {
    const uint64_t slices = uint64_t{1} << policy_.slices_log2;
    return Mix64(static_cast<uint64_t>(key)) % slices == now.step % slices;
  }

  bool Expired(const Past& past, double norm, const Moment& now) const {
    const uint64_t age = now.step - past.steps.back();
    if (age == 0) return false;
    const bool unseen =
        policy_.unseen_steps > 0 && age >= static_cast<uint64_t>(policy_.unseen_steps);
    const bool old = policy_.unseen_time > 0 && past.time != kNoTime &&
                     now.time - past.time >= policy_.unseen_time;
    return unseen || old || Frequency(past, now) < policy_.min_frequency || norm < policy_.min_norm;
  }

  void ForgetWaiting(const Moment& now) {
    for (auto at = waiting_.begin(); policy_.waiting_steps > 0 && at != waiting_.end();) {
      const uint64_t age = now.step - at->second.steps.back();
      const bool forgotten = Examined(at->first, now) && age > 0 &&
                             age >= static_cast<uint64_t>(policy_.waiting_steps);
      at = forgotten ? waiting_.erase(at) : std::next(at);
    }
  }

  RowPolicy policy_;
  std::map<int64_t, Past> rows_, waiting_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_UPDATE_POLICY_MODEL_H_
