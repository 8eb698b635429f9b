// A CompactIndex beside a map: keys come, go and get other rows, at every size.
#include "core/store/compact_index.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace tfhybrid::compact_index_test {
namespace {

struct alignas(64) Bucket {
  uint64_t slots[CompactIndex::kSlotsPerBucket];
};

// An index, the keys of its rows, and what it should hold.
class Modelled {
 public:
  explicit Modelled(int64_t slots)
      : buckets_(static_cast<size_t>(slots / CompactIndex::kSlotsPerBucket)),
        index_(Span<uint64_t>(buckets_.data()->slots, slots)) {}

  int64_t Find(int64_t key) const {
    return index_.Find(key, [&](int64_t row, int64_t its) {
      return row < static_cast<int64_t>(keys_.size()) && keys_[static_cast<size_t>(row)] == its;
    });
  }
  void Add(int64_t key) {
    rows_[key] = static_cast<int64_t>(keys_.size());
    freed_ += index_.Insert(key, rows_[key]);
    keys_.push_back(key);
  }
  // As a table does: the last row takes the place of the one that goes.
  void Remove(int64_t key) {
    const int64_t row = rows_[key], last = static_cast<int64_t>(keys_.size()) - 1;
    freed_ += index_.Erase(key, row);
    EXPECT_EQ(0, index_.Erase(key, row));
    const int64_t moved = keys_.back();
    keys_[static_cast<size_t>(row)] = moved;
    if (row != last) {
      index_.Move(moved, last, row);
      index_.Move(moved, last, row);
      rows_[moved] = row;
    }
    keys_.pop_back();
    rows_.erase(key);
  }
  void Check(int64_t keys) const {
    for (int64_t key = -keys; key < keys; ++key) {
      const auto found = rows_.find(key);
      ASSERT_EQ(found == rows_.end() ? CompactIndex::kMissing : found->second, Find(key));
    }
    const KeyIndex::Use use = index_.CountUse();
    EXPECT_EQ(static_cast<int64_t>(rows_.size()), use.taken);
    EXPECT_EQ(freed_, use.freed);
    for (const uint32_t slices_log2 : {0u, 1u, 4u, 9u}) CheckSlices(slices_log2);
  }
  int64_t used() const { return static_cast<int64_t>(rows_.size()) + freed_; }
  const std::map<int64_t, int64_t>& rows() const { return rows_; }

 private:
  void CheckSlices(uint32_t slices_log2) const {
    std::map<int64_t, int64_t> visited;
    for (uint64_t slice = 0; slice < uint64_t{1} << slices_log2; ++slice) {
      index_.VisitSlice(
          slice, slices_log2, [&](int64_t row) { return keys_[static_cast<size_t>(row)]; },
          [&](int64_t key, int64_t row) {
            const uint64_t low = Mix64(static_cast<uint64_t>(key)) & ((1u << slices_log2) - 1);
            EXPECT_EQ(slice, low);
            EXPECT_TRUE(visited.emplace(key, row).second);
          });
    }
    EXPECT_EQ(rows_, visited);
  }
  std::vector<Bucket> buckets_;
  CompactIndex index_;
  std::vector<int64_t> keys_;
  std::map<int64_t, int64_t> rows_;
  int64_t freed_ = 0;
};

TEST(CompactIndexTest, HoldsWhatAMapHolds) {
  std::mt19937_64 random(5);
  for (int64_t slots = 32; slots <= 1024; slots += CompactIndex::kSlotsPerBucket) {
    if (!CompactIndex::IsSize(slots)) continue;
    SCOPED_TRACE(slots);
    Modelled model(slots);
    for (int step = 0; step < 4000; ++step) {
      const int64_t key = static_cast<int64_t>(random() % 1600) - 800;
      if (model.rows().count(key) != 0) {
        model.Remove(key);
      } else if (model.used() < CompactIndex::MaxKeys(slots)) {
        model.Add(key);
      }
    }
    model.Check(800);
  }
}

TEST(CompactIndexTest, CostsAtMostTwelveBytesAKeyWhereverItGrows) {
  int64_t slots = CompactIndex::SlotsFor(1);
  for (int64_t keys = 1; keys < int64_t{1} << 32; keys += 1 + keys / 97) {
    const int64_t wanted = CompactIndex::SlotsFor(keys + keys / 24);
    ASSERT_TRUE(CompactIndex::IsSize(wanted));
    ASSERT_GE(CompactIndex::MaxKeys(wanted), keys);
    ASSERT_GE(wanted, slots);
    slots = wanted;
    if (keys > 1000) {
      ASSERT_LE(8 * wanted, 12 * keys) << keys;
    }
  }
}

// Two keys of one hash in the high bits differ in their rows alone.
TEST(CompactIndexTest, ForgetsAllKeysOfOneHash) {
  std::vector<Bucket> buckets(4);
  CompactIndex index(Span<uint64_t>(buckets.data()->slots, 32));
  for (int64_t row = 0; row < 3; ++row) index.Insert(7, row);
  index.Insert(8, 3);
  std::set<int64_t> erased;
  EXPECT_EQ(0, index.EraseHash(7, [&](int64_t row) { erased.insert(row); }));
  EXPECT_EQ((std::set<int64_t>{0, 1, 2}), erased);
  EXPECT_FALSE(index.Names(7, 1));
  EXPECT_TRUE(index.Names(8, 3));
}

}  // namespace
}  // namespace tfhybrid::compact_index_test
