// KeyHandle: the number that stands for a key in a batch that a data node has split. It says which
// node owns the key and where it lies among that owner's keys of the batch, and never the key.
//
//     bit 63   0
//     bit 62   1: a small number is no key handle
//     24 bits  ticket of the batch
//     12 bits  owner, a host of the topology
//     26 bits  index among the owner's keys of a table
//
// Trainers look up and update key handles as they would keys; owners turn them back into keys
// (core/exchange/batch_keys.h).
#ifndef TFHYBRID_CORE_PLACEMENT_KEY_HANDLE_H_
#define TFHYBRID_CORE_PLACEMENT_KEY_HANDLE_H_

#include <cstdint>

#include "core/placement/allocation.h"

namespace tfhybrid {

struct KeyHandle {
  static constexpr int kIndexBits = 26;
  static constexpr int kOwnerBits = 12;
  static constexpr int kTicketBits = 24;
  static constexpr int64_t kMaxKeys = int64_t{1} << kIndexBits;
  // Number of tickets; after so many batches they are given again.
  static constexpr int64_t kTickets = int64_t{1} << kTicketBits;

  int64_t ticket, owner, index;

  // REQUIRES: each number fits.
  int64_t Word() const {
    return int64_t{1} << 62 | ticket << (kOwnerBits + kIndexBits) | owner << kIndexBits | index;
  }
  static bool Is(int64_t word) { return word >> 62 == 1; }
  static KeyHandle Of(int64_t word) {
    return {word >> (kOwnerBits + kIndexBits) & (kTickets - 1), OwnerOf(word),
            word & (kMaxKeys - 1)};
  }
  static int64_t OwnerOf(int64_t word) {
    return word >> kIndexBits & ((int64_t{1} << kOwnerBits) - 1);
  }
  // Whether ticket `a` was given before `b`. REQUIRES: fewer than half of all tickets lie between.
  static bool Before(int64_t a, int64_t b) {
    return a != b && ((b - a) & (kTickets - 1)) < kTickets / 2;
  }
};
static_assert(KeyHandle::kIndexBits + KeyHandle::kOwnerBits + KeyHandle::kTicketBits == 62);
static_assert(Allocation::kSlots <= int64_t{1} << KeyHandle::kOwnerBits);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PLACEMENT_KEY_HANDLE_H_
