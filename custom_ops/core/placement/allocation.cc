#include "core/placement/allocation.h"

namespace tfhybrid {
namespace {

uint64_t HashOf(const std::string& name) {
  uint64_t hash = name.size();
  for (const char c : name) hash = Mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

Allocation::Allocation(const std::string& table, int64_t owners)
    : owners_(owners), table_hash_(HashOf(table)), owner_of_slot_(kSlots) {}

std::shared_ptr<const Allocation> Allocation::Even(const std::string& table, int64_t owners) {
  std::shared_ptr<Allocation> made(new Allocation(table, owners));
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    made->owner_of_slot_[static_cast<size_t>(slot)] = static_cast<uint16_t>(slot * owners / kSlots);
  }
  return made;
}

std::shared_ptr<const Allocation> Allocation::Whole(const std::string& table, int64_t owners,
                                                    int64_t owner) {
  std::shared_ptr<Allocation> made(new Allocation(table, owners));
  made->owner_of_slot_.assign(kSlots, static_cast<uint16_t>(owner));
  return made;
}

}  // namespace tfhybrid
