#include "core/engine/placed_tables.h"

#include <chrono>
#include <thread>

namespace tfhybrid {
namespace {

constexpr auto kOpenPoll = std::chrono::milliseconds(5);

}  // namespace

Status PlacedTables::Open(TableConfig config, const Placement& placement, int timeout_ms) {
  const int64_t hosts = topology_.Hosts(), owners = topology_.Owners();
  if (placement.kind != PlacementKind::kReplicated) {
    if (hosts > Allocation::kSlots || placement.owner < 0 || placement.owner >= owners) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", config.name, "' is owned by ",
                           "0 to ", owners - 1, " of its owners, on ", Allocation::kSlots,
                           " hosts at most. Received: owner ", placement.owner, ", ", hosts,
                           " hosts");
    }
    // Where there is one host, it has all rows.
    if (hosts > 1) {
      config.shard = {static_cast<uint32_t>(owners), placement.kind == PlacementKind::kWhole,
                      static_cast<uint32_t>(placement.owner)};
      const int64_t first = topology_.FirstOwner();
      const MutexLock guard(mutex_);
      allocations_[config.name] =
          placement.kind == PlacementKind::kByKey
              ? Allocation::Even(config.name, hosts, first)
              : Allocation::Whole(config.name, hosts, first + placement.owner);
    }
  }
  return store_->OpenNamed(config, timeout_ms).status();
}

Result<std::shared_ptr<OpenTable>> PlacedTables::Get(const std::string& name) const {
  std::shared_ptr<OpenTable> table = store_->Find(name);
  if (table == nullptr || !table->named) {
    return Status::Error(StatusCode::kNotFound, "No table named '", name,
                         "' is open in this process: build its layer after tfhybrid.init() and, "
                         "with resume='memory', call tfhybrid.checkpoint.restore() before it is "
                         "used");
  }
  return table;
}

Result<std::shared_ptr<OpenTable>> PlacedTables::Await(const std::string& name) const {
  for (;;) {
    Result<std::shared_ptr<OpenTable>> table = Get(name);
    if (table.ok()) return table;
    TFHYBRID_RETURN_IF_ERROR(check_alive_());
    std::this_thread::sleep_for(kOpenPoll);
  }
}

std::shared_ptr<const Allocation> PlacedTables::AllocationOf(const std::string& table) const {
  const MutexLock guard(mutex_);
  const auto found = allocations_.find(table);
  return found == allocations_.end() ? nullptr : found->second;
}

std::function<bool(int64_t key)> PlacedTables::OwnsOf(const std::string& table) const {
  const std::shared_ptr<const Allocation> allocation = AllocationOf(table);
  if (allocation == nullptr) return nullptr;
  return
      [allocation, host = topology_.host](int64_t key) { return allocation->OwnerOf(key) == host; };
}

bool PlacedTables::AreSharded(const OpenTables& tables) const {
  const MutexLock guard(mutex_);
  if (allocations_.empty()) return false;
  for (const auto& table : tables) {
    if (allocations_.count(table->reader->name()) > 0) return true;
  }
  return false;
}

}  // namespace tfhybrid
