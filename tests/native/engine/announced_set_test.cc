#include "core/engine/announced_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace tfhybrid {
namespace {

TEST(AnnouncedSet, HoldsNothingAtFirst) {
  const AnnouncedSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.Find(0), 0);
}

TEST(AnnouncedSet, KeepsTheLastAnnouncementOfAnyKey) {
  AnnouncedSet set;
  for (const int64_t key : {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0},
                            std::numeric_limits<int64_t>::max()}) {
    set.Add(key, 3);
    set.Add(key, 5);
    EXPECT_EQ(set.Find(key), 5);
    set.Remove(key);
    EXPECT_EQ(set.Find(key), 0);
  }
  EXPECT_TRUE(set.empty());
}

// Few distinct keys and many removals: entries move across the end of the table and back.
TEST(AnnouncedSet, IsTheMapOfTheSameCalls) {
  std::mt19937_64 random(7);
  for (const int64_t distinct : {3, 400, 20000}) {
    AnnouncedSet set;
    std::map<int64_t, int64_t> model;
    for (int64_t call = 1; call <= 100000; ++call) {
      const int64_t key = static_cast<int64_t>(random() % static_cast<uint64_t>(distinct));
      ASSERT_EQ(set.Find(key), model.count(key) > 0 ? model[key] : 0) << "call " << call;
      if (random() % 2 == 0) {
        set.Add(key, call);
        model[key] = call;
      } else if (model.erase(key) > 0) {
        set.Remove(key);
      }
      ASSERT_EQ(set.empty(), model.empty());
    }
    std::set<int64_t> keys;
    set.ForEach([&](int64_t key) { EXPECT_TRUE(keys.insert(key).second); });
    ASSERT_EQ(keys.size(), model.size());
    for (const auto& [key, announcement] : model) EXPECT_EQ(keys.count(key), 1u);
  }
}

}  // namespace
}  // namespace tfhybrid
