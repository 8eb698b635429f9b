#include "core/compute/merged_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace tfhybrid::merged_keys_test {
namespace {

// What a rank brings, and owns.
struct Rank {
  std::vector<int64_t> keys;
  std::vector<float> gradients;
  int64_t host;
};

std::vector<Rank> RandomRanks(const std::vector<int64_t>& hosts, int64_t dim,
                              std::mt19937_64* random) {
  std::uniform_real_distribution<float> gradient(-1.0f, 1.0f);
  std::vector<Rank> ranks;
  for (const int64_t host : hosts) {
    std::set<int64_t> distinct;
    for (uint64_t i = (*random)() % 50; i > 0; --i) {
      const auto key = static_cast<int64_t>((*random)() % 40);
      distinct.insert(key % 3 == 0 ? key : std::numeric_limits<int64_t>::min() + key);
    }
    Rank rank = {{distinct.begin(), distinct.end()}, {}, host};
    std::shuffle(rank.keys.begin(), rank.keys.end(), *random);
    for (size_t i = 0; i < rank.keys.size() * static_cast<size_t>(dim); ++i) {
      rank.gradients.push_back(gradient(*random));
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// The sums of a key by host, and in how many ranks it is.
struct Wanted {
  std::vector<std::pair<int64_t, std::vector<float>>> hosts;
  uint32_t count = 0;

  void Add(int64_t host, const float* gradient, int64_t dim) {
    ++count;
    if (hosts.empty() || hosts.back().first != host) {
      hosts.emplace_back(host, std::vector<float>(gradient, gradient + dim));
      return;
    }
    for (int64_t c = 0; c < dim; ++c) hosts.back().second[static_cast<size_t>(c)] += gradient[c];
  }
  std::vector<float> Sum() const {
    std::vector<float> sum = hosts.front().second;
    for (size_t host = 1; host < hosts.size(); ++host) {
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += hosts[host].second[c];
    }
    return sum;
  }
};

// Merges in `parts` parts and compares with a map; `merged` has one entry per part, reused.
void ExpectMerged(std::vector<MergedKeys>* merged, const std::vector<Rank>& ranks, int64_t dim) {
  std::vector<RankGradients> gradients;
  std::vector<int64_t> order;
  std::map<int64_t, Wanted> wanted;
  for (const Rank& rank : ranks) {
    gradients.push_back({rank.keys, rank.gradients.data(), rank.host});
    for (size_t i = 0; i < rank.keys.size(); ++i) {
      if (wanted.count(rank.keys[i]) == 0) order.push_back(rank.keys[i]);
      wanted[rank.keys[i]].Add(rank.host, rank.gradients.data() + i * static_cast<size_t>(dim),
                               dim);
    }
  }
  const auto parts = static_cast<int64_t>(merged->size());
  KeyParts divided;
  divided.Divide({gradients}, {parts}, RunInline);
  std::vector<float> scratch(static_cast<size_t>(MergedKeys::ScratchFloats(dim)));
  std::set<int64_t> seen;
  for (int64_t part = 0; part < parts; ++part) {
    MergedKeys& of_part = (*merged)[static_cast<size_t>(part)];
    of_part.Merge(gradients, dim, divided.Of(0, part));
    size_t position = 0;
    for (int64_t i = 0; i < of_part.keys().size(); ++i) {
      const int64_t key = of_part.keys()[i];
      EXPECT_TRUE(seen.insert(key).second) << key;
      ASSERT_EQ(1u, wanted.count(key)) << key;
      EXPECT_EQ(wanted[key].count, of_part.Count(i));
      EXPECT_EQ(0, std::memcmp(wanted[key].Sum().data(), of_part.Sum(i, scratch.data()),
                               static_cast<size_t>(dim) * sizeof(float)))
          << key;
      // In order of first occurrence.
      while (position < order.size() && order[position] != key) ++position;
      EXPECT_LT(position, order.size()) << key;
    }
  }
  EXPECT_EQ(wanted.size(), seen.size());
}

TEST(MergedKeysTest, SumsAsAMapDoesForAnyRanksHostsAndParts) {
  std::mt19937_64 random(5);
  const std::vector<std::vector<int64_t>> layouts = {
      {0},       {0, 0},       {0, 1},          {0, 0, 0},       {0, 1, 2},
      {0, 0, 1}, {0, 1, 1, 2}, {0, 0, 0, 1, 1}, {0, 0, 1, 2, 2}, {7, 7, 7, 3, 3}};
  for (int64_t parts = 1; parts <= 7; ++parts) {
    std::vector<MergedKeys> merged(static_cast<size_t>(parts));
    for (const std::vector<int64_t>& hosts : layouts) {
      for (const int64_t dim : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33}) {
        ExpectMerged(&merged, RandomRanks(hosts, dim, &random), dim);
      }
    }
  }
}

TEST(MergedKeysTest, PartsAreOfAboutOneSize) {
  Rank rank;
  rank.host = 0;
  for (int64_t key = 0; key < 70000; ++key) rank.keys.push_back(key);
  rank.gradients.resize(rank.keys.size());
  MergedKeys merged;
  for (int64_t part = 0; part < 7; ++part) {
    merged.Merge({{rank.keys, rank.gradients.data(), 0}}, 1, {part, 7});
    EXPECT_NEAR(10000, static_cast<double>(merged.keys().size()), 500);
  }
}

TEST(MergedKeysTest, GradientOfOneRankStaysWhereItIs) {
  const std::vector<int64_t> keys = {4, 5};
  const std::vector<float> gradients = {1, 2, 3, 4};
  MergedKeys merged;
  for (const int64_t ranks : {1, 2}) {
    std::vector<RankGradients> all = {{keys, gradients.data(), 0}};
    if (ranks == 2) all.push_back({{}, nullptr, 0});
    merged.Merge(all, 2);
    EXPECT_EQ(gradients.data() + 2, merged.Sum(1, nullptr));
    EXPECT_EQ(1u, merged.Count(1));
  }
}

TEST(MergedKeysTest, NoRankHasKeys) {
  std::vector<MergedKeys> merged(3);
  ExpectMerged(&merged, {{{}, {}, 0}, {{}, {}, 1}}, 4);
}

std::vector<int64_t> RandomKeys(size_t count, std::mt19937_64* random) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = static_cast<int64_t>((*random)());
  return keys;
}

TEST(KeyPartsTest, UnitsGrowWithTheKeysOfTheirTable) {
  std::vector<MergeUnit> units;
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
}  // namespace tfhybrid::merged_keys_test
