#include "core/placement/allocation.h"

namespace tfhybrid {
namespace {

uint64_t HashOf(const std::string& name) {
  uint64_t hash = name.size();
  for (const char c : name) hash = Mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

Allocation::Allocation(const std::string& table, int64_t nodes)
    : nodes_(nodes), table_hash_(HashOf(table)), owner_of_slot_(kSlots) {}

std::shared_ptr<const Allocation> Allocation::Even(const std::string& table, int64_t nodes,
                                                   int64_t first) {
  std::shared_ptr<Allocation> made(new Allocation(table, nodes));
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    made->owner_of_slot_[static_cast<size_t>(slot)] =
        static_cast<uint16_t>(first + slot * (nodes - first) / kSlots);
  }
  return made;
}

std::shared_ptr<const Allocation> Allocation::Whole(const std::string& table, int64_t nodes,
                                                    int64_t owner) {
  std::shared_ptr<Allocation> made(new Allocation(table, nodes));
  made->owner_of_slot_.assign(kSlots, static_cast<uint16_t>(owner));
  return made;
}

}  // namespace tfhybrid
