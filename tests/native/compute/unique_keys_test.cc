#include "core/compute/unique_keys.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace tfhybrid::unique_keys_test {
namespace {

TEST(UniqueKeysTest, ManyKeysAreNumberedAsOneAfterTheOther) {
  std::mt19937_64 random(8);
  UniqueKeys one, many;
  for (const size_t count : {0, 1, 255, 256, 257, 5000}) {
    std::vector<int64_t> keys = {0, -1, std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max()};
    for (size_t i = 0; i < count; ++i) keys.push_back(static_cast<int64_t>(random() % 700));
    const auto max_keys = static_cast<int64_t>(2 * keys.size());
    one.Reset(max_keys);
    many.Reset(max_keys);
    std::vector<uint32_t> numbers(keys.size());
    for (int again = 0; again < 2; ++again) {
      many.Number(keys, numbers.data());
      for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(one.Number(keys[i]), numbers[i]);
    }
    EXPECT_EQ(one.size(), many.size());
    for (int64_t i = 0; i < one.size(); ++i) EXPECT_EQ(one.keys()[i], many.keys()[i]);
    EXPECT_EQ(1, many.Find(-1));
    EXPECT_EQ(-1, many.Find(-2));
  }
}

}  // namespace
}  // namespace tfhybrid::unique_keys_test
