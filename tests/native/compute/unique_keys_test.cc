#include "core/compute/unique_keys.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

namespace tfhybrid::unique_keys_test {
namespace {

TEST(UniqueKeysTest, KeysHaveNumbersInOrderOfFirstOccurrence) {
  std::mt19937_64 random(8);
  UniqueKeys one, unique;
  EXPECT_EQ(0, unique.size());
  for (const size_t count : {0, 1, 59, 60, 61, 255, 256, 257, 5000}) {
    std::vector<int64_t> keys = {0, -1, std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max()};
    for (size_t i = 0; i < count; ++i) keys.push_back(static_cast<int64_t>(random() % 700));
    std::unordered_map<int64_t, int64_t> expected;
    std::vector<int64_t> distinct;
    for (const int64_t key : keys) {
      if (expected.emplace(key, distinct.size()).second) distinct.push_back(key);
    }
    one.Reset(static_cast<int64_t>(keys.size()));
    unique.Reset(static_cast<int64_t>(keys.size()));
    std::vector<uint32_t> numbers(keys.size());
    std::vector<int64_t> again(keys.size());
    unique.Number(keys, numbers.data());
    unique.Number(keys, again.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(expected[keys[i]], one.Number(keys[i]));
      ASSERT_EQ(expected[keys[i]], numbers[i]);
      ASSERT_EQ(expected[keys[i]], again[i]);
    }
    EXPECT_EQ(distinct, std::vector<int64_t>(unique.keys().begin(), unique.keys().end()));
    EXPECT_EQ(one.size(), unique.size());
    EXPECT_EQ(1, unique.Find(-1));
    EXPECT_EQ(-1, unique.Find(-2));
  }
}

}  // namespace
}  // namespace tfhybrid::unique_keys_test
