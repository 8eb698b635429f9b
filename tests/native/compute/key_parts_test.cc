#include "core/compute/key_parts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace tfhybrid::key_parts_test {
namespace {

struct Unit {
  size_t table;
  int64_t part;
};

std::vector<int64_t> RandomKeys(size_t count, std::mt19937_64* random) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = static_cast<int64_t>((*random)());
  return keys;
}

TEST(KeyPartsTest, UnitsGrowWithTheKeysOfTheirTable) {
  std::vector<Unit> units;
  EXPECT_EQ((std::vector<int64_t>{1, 1, 3}), PlanUnits({kPartKeys - 1, 0, 2 * kPartKeys}, &units));
  ASSERT_EQ(5u, units.size());
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(2u, units[2 + part].table);
    EXPECT_EQ(static_cast<int64_t>(part), units[2 + part].part);
  }
  EXPECT_EQ(std::vector<int64_t>{1}, PlanUnits({1}, &units));
  EXPECT_EQ(1u, units.size());
}

// A key is in one part, the same on every rank; within a part a rank's keys keep their order.
TEST(KeyPartsTest, EveryKeyIsInOnePart) {
  std::mt19937_64 random(9);
  const std::vector<int64_t> shared = RandomKeys(5000, &random);
  std::vector<int64_t> more = RandomKeys(3000, &random);
  more.insert(more.end(), shared.begin(), shared.end());
  const std::vector<RankGradients> ranks = {
      {shared, nullptr, 0}, {more, nullptr, 0}, {{}, nullptr, 1}};
  KeyParts parts;
  for (const int64_t count : {7, 2, 60}) {
    parts.Divide({ranks, ranks}, {count, 1}, RunInline);
    std::map<int64_t, int64_t> part_of;
    std::vector<int64_t> seen(ranks.size());
    for (int64_t part = 0; part < count; ++part) {
      const KeyPart of = parts.Of(0, part);
      EXPECT_EQ(part, of.part);
      EXPECT_EQ(count, of.parts);
      ASSERT_EQ(ranks.size(), of.positions.size());
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        int64_t last = -1;
        for (const int64_t position : of.positions[rank]) {
          EXPECT_LT(last, position);
          last = position;
          EXPECT_EQ(part, part_of.try_emplace(ranks[rank].keys[position], part).first->second);
        }
        seen[rank] += of.positions[rank].size();
      }
      // About as many in each.
      EXPECT_NEAR(8000.0 / static_cast<double>(count), static_cast<double>(of.positions[1].size()),
                  5 * 8000.0 / static_cast<double>(count) / 8 + 60);
    }
    EXPECT_EQ((std::vector<int64_t>{5000, 8000, 0}), seen);
    EXPECT_TRUE(parts.Of(1, 0).positions.empty());
  }
}

TEST(KeyPartsTest, OneRankIsDividedByPosition) {
  const std::vector<int64_t> keys = {1, 2, 3};
  KeyParts parts;
  parts.Divide({{{keys, nullptr, 0}}}, {3}, RunInline);
  EXPECT_TRUE(parts.Of(0, 2).positions.empty());
  EXPECT_EQ(3, parts.Of(0, 2).parts);
}

}  // namespace
}  // namespace tfhybrid::key_parts_test
