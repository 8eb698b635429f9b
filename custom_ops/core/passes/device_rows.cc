#include "core/passes/device_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMinSlots = 8;
constexpr int64_t kMaxSlots = int64_t{1} << 30;  // slots are int32

}  // namespace

int64_t DeviceRows::SizeFor(int64_t rows) {
  int64_t size = kMinSlots;
  while (size < rows) size *= 2;
  return size;
}

void DeviceRows::Open(int64_t pass, std::vector<int64_t> keys) {
  const MutexLock guard(mutex_);
  open_[pass] = std::move(keys);
  passes_changed_ = true;
}

void DeviceRows::Close(int64_t pass) {
  const MutexLock guard(mutex_);
  passes_changed_ = open_.erase(pass) > 0 || passes_changed_;
}

void DeviceRows::CloseAll() {
  const MutexLock guard(mutex_);
  passes_changed_ = !open_.empty() || passes_changed_;
  open_.clear();
}

Result<DeviceRows::RequestedRows> DeviceRows::Plan(
    const std::vector<Span<const int64_t>>& features, int64_t held,
    const std::function<bool(int64_t key)>& is_at_hand) {
  const MutexLock guard(mutex_);
  if (passes_changed_) Renumber();
  if (held != held_) ForgetCopies();
  int64_t max_keys = 0;
  for (const Span<const int64_t> keys : features) max_keys += keys.size();
  distinct_.Reset(max_keys);
  RequestedRows requested;
  requested.slots.resize(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    requested.slots[f].reserve(static_cast<size_t>(features[f].size()));
    for (const int64_t key : features[f]) {
      requested.slots[f].push_back(static_cast<int32_t>(distinct_.Number(key)));
    }
  }
  const Span<const int64_t> distinct = distinct_.keys();
  std::vector<int64_t> numbers;  // in the index
  for (const int64_t key : distinct) numbers.push_back(index_.Find(key));
  const auto others = static_cast<size_t>(
      std::count_if(numbers.begin(), numbers.end(), [](int64_t number) { return number < 0; }));
  if (others > free_.size()) Resize(index_.size() + static_cast<int64_t>(others));
  if (static_cast<int64_t>(is_kept_.size()) > kMaxSlots) {
    return Status::Error(StatusCode::kResourceExhausted, "A variable on a device has ", kMaxSlots,
                         " rows of a table at max_keys. Received: ", is_kept_.size());
  }
  requested.keys.assign(distinct.begin(), distinct.end());
  requested.at = SlotsOf(numbers);
  for (std::vector<int32_t>& slots : requested.slots) {
    for (int32_t& slot : slots) slot = requested.at[static_cast<size_t>(slot)];
  }
  if (fills_) RequestPasses(is_at_hand, &requested);
  if (makes_anew_) requested.size = static_cast<int64_t>(is_kept_.size());
  requested.numbering = numbering_;
  return requested;
}

Result<std::vector<int64_t>> DeviceRows::Copy(const RequestedRows& requested, const float* rows,
                                              int64_t number) {
  const MutexLock guard(mutex_);
  if (requested.numbering != numbering_) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "The lookups of a table on a device come one after the other. Received: "
                         "two at a time");
  }
  std::vector<int64_t> changed;
  const size_t bytes = static_cast<size_t>(dim_) * sizeof(float);
  for (size_t i = 0; i < requested.keys.size(); ++i) {
    const int32_t slot = requested.at[i];
    const float* const row = rows + static_cast<int64_t>(i) * dim_;
    const auto at = static_cast<size_t>(slot);
    if (is_copied_[at] != 0 && std::memcmp(row, CopyAt(slot), bytes) == 0) continue;
    changed.push_back(static_cast<int64_t>(i));
    if (is_kept_[at] == 0) continue;
    CopyFloats(row, dim_, CopyAt(slot));
    is_copied_[at] = 1;
  }
  copied_ += static_cast<int64_t>(changed.size());
  held_ = number;
  makes_anew_ = fills_ = false;
  return changed;
}

int64_t DeviceRows::bytes() const {
  const MutexLock guard(mutex_);
  return static_cast<int64_t>(copies_.size() * sizeof(float));
}

int64_t DeviceRows::copied() const {
  const MutexLock guard(mutex_);
  return copied_;
}

void DeviceRows::Renumber() {
  passes_changed_ = false;
  fills_ = true;
  ++numbering_;
  int64_t max_keys = 0;
  for (const auto& [pass, keys] : open_) max_keys += static_cast<int64_t>(keys.size());
  UniqueKeys index;
  index.Reset(max_keys);
  for (const auto& [pass, keys] : open_) {
    for (const int64_t key : keys) index.Number(key);
  }
  std::vector<int32_t> slots(static_cast<size_t>(index.size()), -1);
  std::fill(is_kept_.begin(), is_kept_.end(), uint8_t{0});
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t before = index_.Find(index.keys()[static_cast<int64_t>(i)]);
    if (before < 0) continue;
    slots[i] = slots_[static_cast<size_t>(before)];
    is_kept_[static_cast<size_t>(slots[i])] = 1;
  }
  free_.clear();
  for (size_t slot = 0; slot < is_kept_.size(); ++slot) {
    if (is_kept_[slot] != 0) continue;
    is_copied_[slot] = 0;
    free_.push_back(static_cast<int32_t>(slot));
  }
  index_ = std::move(index);
  slots_ = std::move(slots);
  const auto news = static_cast<size_t>(std::count(slots_.begin(), slots_.end(), -1));
  if (news > free_.size()) {
    Resize(index_.size());
    return;
  }
  size_t next = 0;
  for (int32_t& slot : slots_) {
    if (slot >= 0) continue;
    slot = free_[next++];
    is_kept_[static_cast<size_t>(slot)] = 1;
  }
  free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(next));
}

void DeviceRows::Resize(int64_t slots) {
  const auto size = static_cast<size_t>(SizeFor(slots));
  const auto kept = static_cast<size_t>(index_.size());
  is_kept_.assign(size, 0);
  std::fill_n(is_kept_.begin(), kept, uint8_t{1});
  is_copied_.resize(size);
  copies_.resize(size * static_cast<size_t>(dim_));
  slots_.resize(kept);
  for (size_t i = 0; i < kept; ++i) slots_[i] = static_cast<int32_t>(i);
  free_.clear();
  for (size_t slot = kept; slot < size; ++slot) free_.push_back(static_cast<int32_t>(slot));
  ForgetCopies();
}

void DeviceRows::ForgetCopies() {
  std::fill(is_copied_.begin(), is_copied_.end(), uint8_t{0});
  makes_anew_ = fills_ = true;
  ++numbering_;
}

std::vector<int32_t> DeviceRows::SlotsOf(const std::vector<int64_t>& numbers) const {
  std::vector<int32_t> slots;
  slots.reserve(numbers.size());
  size_t others = 0;
  for (const int64_t number : numbers) {
    slots.push_back(number < 0 ? free_[others++] : slots_[static_cast<size_t>(number)]);
  }
  return slots;
}

void DeviceRows::RequestPasses(const std::function<bool(int64_t key)>& is_at_hand,
                               RequestedRows* requested) const {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t key = index_.keys()[static_cast<int64_t>(i)];
    const bool is_copied = is_copied_[static_cast<size_t>(slots_[i])] != 0;
    if (is_copied || distinct_.Find(key) >= 0 || !is_at_hand(key)) continue;
    requested->keys.push_back(key);
    requested->at.push_back(slots_[i]);
  }
}

}  // namespace tfhybrid
