// PlacedTables: the tables that a process has open, by name, and the hosts that own their rows.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_PLACED_TABLES_H_
#define TFHYBRID_CORE_ENGINE_PLACED_TABLES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/version_read.h"
#include "core/placement/allocation.h"
#include "core/placement/topology.h"
#include "core/util/mutex.h"

namespace tfhybrid {

class PlacedTables {
 public:
  PlacedTables(std::shared_ptr<Store> store, Topology topology)
      : store_(std::move(store)),
        topology_(std::move(topology)),
        check_alive_([alive = store_.get()] { return alive->CheckLeader(); }) {}

  const Store& store() const { return *store_; }
  const Topology& topology() const { return topology_; }
  // For whoever waits for another process: Ok while the job goes on and this host's leader lives.
  const std::function<Status()>& check_alive() const { return check_alive_; }

  // Like Store::OpenNamed(), for a table with that placement over the hosts of the job.
  Status Open(TableConfig config, const Placement& placement, int timeout_ms);
  // The open table of that name, or an error that says what the user must do first.
  Result<std::shared_ptr<OpenTable>> Get(const std::string& name) const;
  // Likewise, but waits until this process has opened it.
  Result<std::shared_ptr<OpenTable>> Await(const std::string& name) const;

  // The owners of a table's keys; null if this host has all rows.
  std::shared_ptr<const Allocation> AllocationOf(const std::string& table) const;
  // Returns a function that tells whether this host owns a key of a table; null if it has all rows.
  std::function<bool(int64_t key)> OwnsOf(const std::string& table) const;
  // Whether another host may own rows of one of these tables.
  bool AreSharded(const OpenTables& tables) const;

  // Copies embeddings of several tables at one common update, and returns the version of each
  // (core/engine/version_read.h).
  Result<std::vector<uint64_t>> Read(const std::vector<TableRead>& reads,
                                     int timeout_ms = std::numeric_limits<int>::max()) const {
    return ReadVersion(reads, timeout_ms, check_alive_);
  }

 private:
  const std::shared_ptr<Store> store_;
  const Topology topology_;
  const std::function<Status()> check_alive_;
  mutable Mutex mutex_;
  // Of sharded tables, by name.
  std::map<std::string, std::shared_ptr<const Allocation>> allocations_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_PLACED_TABLES_H_
