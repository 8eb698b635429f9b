#include "core/passes/device_tier.h"

#include <utility>

#include "core/compute/unique_keys.h"

namespace tfhybrid {

void DeviceTier::Add(const std::string& table, int64_t dim) {
  const MutexLock guard(mutex_);
  if (tables_.count(table) == 0) tables_[table] = std::make_shared<DeviceRows>(dim);
}

std::shared_ptr<DeviceRows> DeviceTier::Of(const std::string& table) const {
  const MutexLock guard(mutex_);
  const auto found = tables_.find(table);
  return found == tables_.end() ? nullptr : found->second;
}

DeviceTier::Keys DeviceTier::Request(const std::string& table, int64_t dim,
                                     Span<const int64_t> keys) {
  UniqueKeys unique;
  unique.Reset(keys.size());
  for (const int64_t key : keys) unique.Number(key);
  return {table, dim, {unique.keys().begin(), unique.keys().end()}};
}

int64_t DeviceTier::Bytes(const std::vector<Keys>& requested) {
  int64_t bytes = 0;
  for (const Keys& of : requested) {
    const int64_t rows = DeviceRows::SizeFor(static_cast<int64_t>(of.keys.size()));
    bytes += rows * of.dim * int64_t{sizeof(float)};
  }
  return bytes;
}

void DeviceTier::Announce(int64_t pass, std::vector<Keys> requested) {
  const MutexLock guard(mutex_);
  if (!requested.empty()) announced_[pass] = std::move(requested);
}

void DeviceTier::Begin(int64_t pass) {
  const MutexLock guard(mutex_);
  const auto found = announced_.find(pass);
  if (found == announced_.end()) return;  // has begun, or has no keys here
  for (Keys& of : found->second) tables_[of.table]->Open(pass, std::move(of.keys));
  announced_.erase(found);
}

void DeviceTier::End(int64_t pass) {
  const MutexLock guard(mutex_);
  announced_.erase(pass);
  for (const auto& [name, table] : tables_) table->Close(pass);
}

void DeviceTier::EndAll() {
  const MutexLock guard(mutex_);
  announced_.clear();
  for (const auto& [name, table] : tables_) table->CloseAll();
}

DeviceCounts DeviceTier::counts() const {
  const MutexLock guard(mutex_);
  DeviceCounts counts;
  for (const auto& [name, table] : tables_) {
    counts.bytes += table->bytes();
    counts.copied += table->copied();
  }
  return counts;
}

}  // namespace tfhybrid
