#include "core/placement/allocation.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

namespace tfhybrid {
namespace {

constexpr int64_t kFarKeys[] = {0, -1, std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max()};

TEST(AllocationTest, OwnersGetEqualSharesOfKeysThatFollowEachOther) {
  constexpr int64_t kKeysEach = 10000;
  for (const int64_t owners : {1, 2, 3, 7, 64}) {
    const std::shared_ptr<const Allocation> allocation = Allocation::Even("item", owners);
    std::vector<int64_t> keys(static_cast<size_t>(owners), 0);
    for (int64_t key = -kKeysEach; key < (owners - 1) * kKeysEach; ++key) {
      ++keys.at(static_cast<size_t>(allocation->OwnerOf(key)));
    }
    // Six standard deviations of a fair draw, and a slot more or less of 64.
    for (const int64_t owned : keys) EXPECT_NEAR(kKeysEach, owned, 750) << owners << " owners";
  }
}

TEST(AllocationTest, EveryKeyHasAnOwner) {
  for (const int64_t owners : {int64_t{1}, int64_t{3}, Allocation::kSlots}) {
    const std::shared_ptr<const Allocation> allocation = Allocation::Even("item", owners);
    EXPECT_EQ(owners, allocation->nodes());
    for (const int64_t key : kFarKeys) {
      EXPECT_GE(allocation->OwnerOf(key), 0);
      EXPECT_LT(allocation->OwnerOf(key), owners);
    }
  }
}

TEST(AllocationTest, ATableMayLieWholeOnOneOwner) {
  const std::shared_ptr<const Allocation> allocation = Allocation::Whole("item", 5, 3);
  for (const int64_t key : kFarKeys) EXPECT_EQ(3, allocation->OwnerOf(key));
}

TEST(AllocationTest, KeysOfTwoTablesLieIndependently) {
  const std::shared_ptr<const Allocation> item = Allocation::Even("item", 8);
  const std::shared_ptr<const Allocation> user = Allocation::Even("user", 8);
  int64_t together = 0;
  for (int64_t key = 0; key < 8000; ++key) together += item->OwnerOf(key) == user->OwnerOf(key);
  EXPECT_NEAR(1000, together, 180);
}

// The slots of checkpoints and of processes of other versions.
TEST(AllocationTest, SlotsNeverChange) {
  const std::shared_ptr<const Allocation> allocation = Allocation::Even("item", 2);
  const std::vector<int64_t> slots = {allocation->SlotOf(0), allocation->SlotOf(1),
                                      allocation->SlotOf(-1), allocation->SlotOf(kFarKeys[2])};
  EXPECT_EQ((std::vector<int64_t>{3974, 2102, 3710, 1265}), slots);
}

}  // namespace
}  // namespace tfhybrid
