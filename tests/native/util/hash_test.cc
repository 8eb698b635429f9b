#include "core/util/hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <unordered_set>

namespace tfhybrid::hash_test {
namespace {

// A change here breaks every exported model and checkpoint: it has to be a decision.
TEST(Mix64Test, GoldenValues) {
  EXPECT_EQ(Mix64(0), 0u);
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5u);
  EXPECT_EQ(Mix64(uint64_t{1} << 63), 0x25c26ea579cea98au);
  EXPECT_EQ(Mix64(UINT64_MAX), 0xb4d055fcf2cbbd7bu);
}

TEST(Mix64Test, IsTheOutputOfSplitmix64) {
  EXPECT_EQ(Mix64(1 * kGoldenGamma), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Mix64(2 * kGoldenGamma), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(Mix64(3 * kGoldenGamma), 0x06c45d188009454fu);
}

TEST(Mix64Test, ConsecutiveKeysDoNotCollideAndSpread) {
  constexpr int kKeys = 100000;
  constexpr int kBuckets = 256;
  std::unordered_set<uint64_t> seen;
  int low[kBuckets] = {};
  int high[kBuckets] = {};
  for (int key = 0; key < kKeys; ++key) {
    const uint64_t hash = Mix64(static_cast<uint64_t>(key));
    seen.insert(hash);
    ++low[hash % kBuckets];
    ++high[hash >> 56];
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kKeys));
  for (int bucket = 0; bucket < kBuckets; ++bucket) {  // mean 390, six standard deviations 119
    EXPECT_NEAR(low[bucket], kKeys / kBuckets, 119);
    EXPECT_NEAR(high[bucket], kKeys / kBuckets, 119);
  }
}

}  // namespace
}  // namespace tfhybrid::hash_test
