#include "core/placement/key_owner.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tfhybrid {
namespace {

TEST(KeyOwnerTest, OwnersGetEqualSharesOfKeysThatFollowEachOther) {
  constexpr int64_t kKeysEach = 10000;
  for (const int64_t owners : {1, 2, 3, 7, 64}) {
    std::vector<int64_t> keys(static_cast<size_t>(owners), 0);
    for (int64_t key = -kKeysEach; key < (owners - 1) * kKeysEach; ++key) {
      ++keys.at(static_cast<size_t>(OwnerOf(key, owners)));
    }
    // Six standard deviations of a fair draw.
    for (const int64_t share : keys) EXPECT_NEAR(kKeysEach, share, 600) << owners << " owners";
  }
}

TEST(KeyOwnerTest, EveryKeyHasAnOwner) {
  for (const int64_t key : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max()}) {
    for (const int64_t owners : {int64_t{1}, int64_t{3}, int64_t{1} << 20}) {
      EXPECT_GE(OwnerOf(key, owners), 0);
      EXPECT_LT(OwnerOf(key, owners), owners);
    }
  }
}

}  // namespace
}  // namespace tfhybrid
