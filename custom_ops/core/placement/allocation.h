// Allocation: which node owns each key of a table, equal on all nodes.
//
// A key belongs to one of kSlots slots, and each slot has an owner. Nothing else determines a key's
// owner. The table's name is part of the hash; otherwise the hot keys of all tables would be on the
// same owner. It uses other hash bits than those that divide a merge among threads; otherwise one
// thread would get all keys of an owner.
//
// Immutable, and so thread-safe.
#ifndef TFHYBRID_CORE_PLACEMENT_ALLOCATION_H_
#define TFHYBRID_CORE_PLACEMENT_ALLOCATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/util/hash.h"

namespace tfhybrid {

// The placement of a table on the nodes of a job. Numbers are part of the C interface.
enum class PlacementKind : uint32_t {
  kReplicated = 0,  // all rows on every node
  kByKey = 1,       // each row on the owner of its key
  kWhole = 2,       // all rows on one owner
};

struct Placement {
  PlacementKind kind = PlacementKind::kReplicated;
  int64_t owner = 0;  // of kWhole
};

class Allocation {
 public:
  static constexpr int64_t kSlots = 4096;
  static constexpr int kSlotShift = 64 - 12;

  // Divides the slots evenly, in runs, among the nodes from `first` on. REQUIRES: 0 <= first <
  // nodes <= kSlots.
  static std::shared_ptr<const Allocation> Even(const std::string& table, int64_t nodes,
                                                int64_t first = 0);
  // Gives all slots to one node. REQUIRES: owner < nodes.
  static std::shared_ptr<const Allocation> Whole(const std::string& table, int64_t nodes,
                                                 int64_t owner);

  // Number of nodes; some or all of them are owners.
  int64_t nodes() const { return nodes_; }
  int64_t SlotOf(int64_t key) const {
    return static_cast<int64_t>(Mix64(Mix64(static_cast<uint64_t>(key)) + table_hash_) >>
                                kSlotShift);
  }
  int64_t OwnerOf(int64_t key) const { return owner_of_slot_[static_cast<size_t>(SlotOf(key))]; }

 private:
  Allocation(const std::string& table, int64_t nodes);

  int64_t nodes_;
  uint64_t table_hash_;
  std::vector<uint16_t> owner_of_slot_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PLACEMENT_ALLOCATION_H_
