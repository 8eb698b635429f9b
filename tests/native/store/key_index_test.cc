#include "core/store/key_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace tfhybrid::key_index_test {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Slots of an index in plain memory, aligned as a segment's are.
class Slots {
 public:
  explicit Slots(int64_t count) : lines_(static_cast<size_t>(count) / 4), count_(count) {}
  Span<IndexSlot> span() {
    return Span<IndexSlot>(reinterpret_cast<IndexSlot*>(lines_.data()), count_);
  }

 private:
  struct alignas(64) Line {
    IndexSlot slots[4];
  };
  std::vector<Line> lines_;
  int64_t count_;
};

// z ^ (z >> shift) undone.
uint64_t UnXorShift(uint64_t z, int shift) {
  uint64_t x = z;
  for (int done = shift; done < 64; done += shift) x = z ^ (x >> shift);
  return x;
}

// The inverse of an odd factor modulo 2^64, by Newton's method.
uint64_t Inverse(uint64_t factor) {
  uint64_t x = factor;
  for (int i = 0; i < 6; ++i) x *= 2 - factor * x;
  return x;
}

// The key whose hash is `hash`.
int64_t KeyOf(uint64_t hash) {
  uint64_t z = UnXorShift(hash, 31) * Inverse(0x94d049bb133111ebull);
  z = UnXorShift(z, 27) * Inverse(0xbf58476d1ce4e5b9ull);
  return static_cast<int64_t>(UnXorShift(z, 30));
}

int64_t RandomKey(std::mt19937_64* random) {
  const int64_t extremes[] = {0, -1, 1, kMin, kMax, kMin + 1, kMax - 1};
  const uint64_t bits = (*random)();
  switch (bits % 4) {
    case 0:
      return extremes[(bits >> 8) % 7];
    case 1:
      return static_cast<int64_t>((bits >> 8) % 3000) - 1500;
    case 2:
      return KeyOf((bits << 32) | 7);  // One home bucket in every index of less than 2^34 slots.
    default:
      return static_cast<int64_t>((*random)());
  }
}

TEST(KeyIndexTest, SlotsForIsTheSmallestThatHoldsTheKeys) {
  for (int64_t keys = 0; keys < 5000; ++keys) {
    const int64_t slots = KeyIndex::SlotsFor(keys);
    ASSERT_EQ(0, slots & (slots - 1));
    ASSERT_GE(KeyIndex::MaxKeys(slots), keys);
    ASSERT_TRUE(slots == KeyIndex::kSlotsPerBucket || KeyIndex::MaxKeys(slots / 2) < keys);
    ASSERT_LT(KeyIndex::MaxKeys(slots), slots);
  }
  EXPECT_EQ(int64_t{1} << 34, KeyIndex::SlotsFor(int64_t{3} << 32));
}

TEST(KeyIndexTest, MatchesUnorderedMapUnderRandomKeys) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const int64_t capacity = int64_t{4} << (random() % 9);
    Slots slots(capacity);
    KeyIndex index(slots.span());
    std::unordered_map<int64_t, int64_t> model;
    for (int step = 0; step < 5000; ++step) {
      const int64_t key = RandomKey(&random);
      const auto known = model.find(key);
      ASSERT_EQ(known == model.end() ? KeyIndex::kMissing : known->second, index.Find(key)) << key;
      if (known != model.end() ||
          static_cast<int64_t>(model.size()) == KeyIndex::MaxKeys(capacity)) {
        continue;
      }
      const auto row = static_cast<int64_t>(model.size());
      index.Insert(key, row);
      model[key] = row;
    }
    for (const auto& [key, row] : model) ASSERT_EQ(row, index.Find(key));
  }
}

// As a table grows: a full index is followed by one of twice the slots, built from the rows.
TEST(KeyIndexTest, MatchesUnorderedMapWhileItGrows) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<int64_t> rows;  // their keys
    std::unordered_map<int64_t, int64_t> model;
    for (int64_t slots = KeyIndex::kSlotsPerBucket; slots <= 1 << 12; slots *= 2) {
      Slots memory(slots);
      KeyIndex index(memory.span());
      for (size_t row = 0; row < rows.size(); ++row) {
        index.Insert(rows[row], static_cast<int64_t>(row));
      }
      while (static_cast<int64_t>(rows.size()) < KeyIndex::MaxKeys(slots)) {
        const int64_t key = RandomKey(&random);
        const auto [known, is_new] = model.try_emplace(key, rows.size());
        ASSERT_EQ(is_new ? KeyIndex::kMissing : known->second, index.Find(key)) << key;
        if (!is_new) continue;
        index.Insert(key, known->second);
        rows.push_back(key);
      }
      std::vector<int64_t> found(rows.size());
      index.FindBatch(rows, found);
      for (const auto& [key, row] : model) ASSERT_EQ(row, found[static_cast<size_t>(row)]) << key;
      ASSERT_EQ(KeyIndex::kMissing, index.Find(KeyOf(random() << 32 | 8)));
    }
  }
}

TEST(KeyIndexTest, KeysOfOneHomeBucketAreAllFound) {
  Slots slots(4096);
  KeyIndex index(slots.span());
  // The last bucket, so that the probe wraps around.
  constexpr uint64_t kHome = 1023;
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(kHome, Mix64(static_cast<uint64_t>(KeyOf((i << 20) | kHome))) & 1023);
    index.Insert(KeyOf((i << 20) | kHome), static_cast<int64_t>(i));
  }
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(static_cast<int64_t>(i), index.Find(KeyOf((i << 20) | kHome)));
  }
  EXPECT_EQ(KeyIndex::kMissing, index.Find(KeyOf((uint64_t{2000} << 20) | kHome)));
}

TEST(KeyIndexTest, LargestRowNumberComesBack) {
  Slots slots(4);
  KeyIndex index(slots.span());
  index.Insert(kMin, kMax - 1);
  EXPECT_EQ(kMax - 1, index.Find(kMin));
}

TEST(KeyIndexTest, MatchesUnorderedMapWhileKeysComeMoveAndGo) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const int64_t capacity = int64_t{4} << (random() % 9);
    Slots slots(capacity);
    KeyIndex index(slots.span());
    std::unordered_map<int64_t, int64_t> model;
    std::vector<int64_t> known_keys;
    for (int64_t i = 0; i < capacity; ++i) known_keys.push_back(RandomKey(&random));
    int64_t freed = 0, reused = 0;
    for (int step = 0; step < 20000; ++step) {
      const int64_t key = known_keys[random() % known_keys.size()];
      const auto row = static_cast<int64_t>(random() >> 2);
      const auto known = model.find(key);
      ASSERT_EQ(known == model.end() ? KeyIndex::kMissing : known->second, index.Find(key)) << key;
      const auto taken = static_cast<int64_t>(model.size());
      if (random() % 3 == 0) {
        freed += index.Erase(key);
        model.erase(key);
      } else if (known != model.end() || taken + freed < KeyIndex::MaxKeys(capacity)) {
        const int64_t change = index.Set(key, row);
        reused += change == -1;
        freed += change;
        model[key] = row;
      }
      if (step % 1000 == 0) {
        const KeyIndex::Use use = index.CountUse();
        ASSERT_EQ(static_cast<int64_t>(model.size()), use.taken);
        ASSERT_EQ(freed, use.freed);
      }
    }
    for (const auto& [key, row] : model) ASSERT_EQ(row, index.Find(key));
    EXPECT_GE(reused, capacity >= 64 ? 1 : 0);
  }
}

TEST(KeyIndexTest, SlicesHaveEachKeyOnce) {
  std::mt19937_64 random(3);
  for (const int64_t capacity : {4, 8, 64, 4096}) {
    Slots slots(capacity);
    KeyIndex index(slots.span());
    std::unordered_map<int64_t, int64_t> model;
    while (static_cast<int64_t>(model.size()) < KeyIndex::MaxKeys(capacity)) {
      const int64_t key = RandomKey(&random);
      const auto row = static_cast<int64_t>(model.size());
      if (model.try_emplace(key, row).second) index.Insert(key, row);
    }
    for (const int64_t key : {int64_t{0}, kMin}) {
      index.Erase(key);
      model.erase(key);
    }
    for (const uint32_t slices_log2 : {0u, 1u, 5u, 9u}) {
      std::unordered_map<int64_t, int64_t> found;
      for (uint64_t slice = 0; slice < uint64_t{1} << slices_log2; ++slice) {
        index.VisitSlice(slice, slices_log2, [&](int64_t key, int64_t row) {
          EXPECT_EQ(slice, Mix64(static_cast<uint64_t>(key)) % (uint64_t{1} << slices_log2));
          EXPECT_TRUE(found.try_emplace(key, row).second) << key;
        });
      }
      EXPECT_EQ(model, found);
    }
  }
}

TEST(KeyIndexTest, FindBatchEqualsFindAtEveryLength) {
  std::mt19937_64 random(1);
  Slots slots(1024);
  KeyIndex index(slots.span());
  for (int64_t key = 0; key < 700; ++key) index.Insert(key * key, key);
  for (const int64_t length : {0, 1, 2, 255, 256, 257, 511, 512, 513, 1000}) {
    std::vector<int64_t> keys, rows(static_cast<size_t>(length) + 1, 12345);
    for (int64_t i = 0; i < length; ++i) keys.push_back(static_cast<int64_t>(random() % 500000));
    index.FindBatch(keys, rows);
    for (int64_t i = 0; i < length; ++i) {
      ASSERT_EQ(index.Find(keys[static_cast<size_t>(i)]), rows[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(12345, rows.back());
  }
}

// The keys of `index` from `first` on, a group at a time. Returns the change of freed slots.
int64_t InsertBatch(KeyIndex* index, const std::vector<int64_t>& keys, int64_t first) {
  int64_t freed = 0;
  const Span<const int64_t> all(keys);
  int64_t buckets[KeyIndex::kGroup];
  for (int64_t start = 0; start < all.size(); start += KeyIndex::kGroup) {
    const auto group = all.subspan(start, std::min(KeyIndex::kGroup, all.size() - start));
    index->FindRoom(group, buckets);
    for (int64_t i = 0; i < group.size(); ++i) {
      freed += index->InsertFrom(buckets[i], group[i], first + start + i);
    }
  }
  return freed;
}

// Slot by slot, too, in an index where keys were erased, up to the last key that it may hold.
TEST(KeyIndexTest, InsertingABatchEqualsInsertingItsKeysOneByOne) {
  for (const int64_t capacity : {4, 8, 64, 512, 4096}) {
    std::mt19937_64 random(static_cast<uint64_t>(capacity));
    Slots one_by_one(capacity), in_batches(capacity);
    KeyIndex expected(one_by_one.span()), index(in_batches.span());
    std::unordered_map<int64_t, int64_t> model;
    std::vector<int64_t> batch;
    int64_t freed = 0, rows = 0;
    while (static_cast<int64_t>(model.size()) + freed < KeyIndex::MaxKeys(capacity)) {
      batch.clear();
      const uint64_t size = 1 + random() % 700;
      while (batch.size() < size &&
             static_cast<int64_t>(model.size()) + freed < KeyIndex::MaxKeys(capacity)) {
        const int64_t key = RandomKey(&random);
        if (model.try_emplace(key, rows + static_cast<int64_t>(batch.size())).second) {
          batch.push_back(key);
        }
      }
      int64_t expected_change = 0;
      for (size_t i = 0; i < batch.size(); ++i) {
        expected_change += expected.Insert(batch[i], rows + static_cast<int64_t>(i));
      }
      ASSERT_EQ(expected_change, InsertBatch(&index, batch, rows));
      rows += static_cast<int64_t>(batch.size());
      freed += expected_change;
      for (const int64_t key : {int64_t{0}, kMin, kMax, int64_t{-1}, batch.front()}) {
        if (random() % 2 == 0) continue;
        freed += index.Erase(key);
        expected.Erase(key);
        model.erase(key);
      }
    }
    for (int64_t slot = 0; slot < capacity; ++slot) {
      ASSERT_EQ(one_by_one.span()[slot].row_plus_one, in_batches.span()[slot].row_plus_one) << slot;
    }
    for (const auto& [key, row] : model) ASSERT_EQ(row, index.Find(key)) << key;
  }
}

// Whether all keys were new; rows count from 0. Leaves out the parts of no thread.
bool InsertNew(KeyIndex* index, const std::vector<int64_t>& keys, std::vector<uint8_t>* parts) {
  parts->clear();
  for (const int64_t key : keys) parts->push_back(index->PartOf(key));
  std::vector<uint8_t> all_new(KeyIndex::kParts);
  std::vector<std::thread> threads;
  for (uint8_t part = 0; part < KeyIndex::kParts; ++part) {
    threads.emplace_back([&, part] {
      all_new[part] =
          index->InsertNew(keys, 0, part, static_cast<uint8_t>(part + 1), parts->data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::count(all_new.begin(), all_new.end(), 1) == KeyIndex::kParts;
}

// From an index of one bucket, whose other parts are empty, on; keys that collide leave their part.
TEST(KeyIndexTest, ThreadsInsertNewKeysEachIntoItsPart) {
  int64_t left = 0;
  for (int64_t capacity = 4; capacity <= 1 << 16; capacity *= 2) {
    std::mt19937_64 random(static_cast<uint64_t>(capacity));
    std::unordered_map<int64_t, int64_t> model;
    std::vector<int64_t> keys;
    while (static_cast<int64_t>(keys.size()) < KeyIndex::MaxKeys(capacity)) {
      const int64_t key = RandomKey(&random);
      if (model.try_emplace(key, keys.size()).second) keys.push_back(key);
    }
    Slots slots(capacity);
    KeyIndex index(slots.span());
    std::vector<uint8_t> parts;
    ASSERT_TRUE(InsertNew(&index, keys, &parts));
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_left = parts[i] == KeyIndex::kLeft;
      left += is_left;
      ASSERT_EQ(is_left ? KeyIndex::kMissing : model[keys[i]], index.Find(keys[i])) << keys[i];
      if (is_left) index.Insert(keys[i], model[keys[i]]);
    }
    std::vector<int64_t> found(keys.size());
    index.FindBatch(keys, found);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(model[keys[i]], found[i]) << keys[i];
  }
  EXPECT_GT(left, 100);
}

TEST(KeyIndexTest, KeysThatOccurTwiceAreNotNew) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 5000; ++key) keys.push_back(key * key);
  // In one group, in two, and where the bucket of the first one was full.
  for (const size_t twin : {size_t{1}, size_t{4999}}) {
    for (const int64_t key : {kMin, kMax, int64_t{0}, KeyOf(7)}) {
      std::vector<int64_t> twins = keys;
      twins[0] = twins[twin] = key;
      for (size_t i = 2; i < 200; ++i) twins[i] = KeyOf((i << 40) | 7);
      Slots slots(KeyIndex::SlotsFor(5000));
      KeyIndex index(slots.span());
      std::vector<uint8_t> parts;
      EXPECT_FALSE(InsertNew(&index, twins, &parts)) << key << " at " << twin;
    }
  }
}

TEST(KeyIndexTest, StrayKeyOfAKilledWriterIsHarmless) {
  Slots slots(4);
  KeyIndex index(slots.span());
  slots.span()[0].key = 42;
  EXPECT_EQ(KeyIndex::kMissing, index.Find(42));
  index.Insert(43, 5);
  EXPECT_EQ(5, index.Find(43));
  EXPECT_EQ(KeyIndex::kMissing, index.Find(42));
}

TEST(KeyIndexTest, ProbeEndsInADamagedIndexWithoutAnEmptySlot) {
  Slots slots(64);
  for (IndexSlot& slot : slots.span()) slot = {7, 1};
  const KeyIndex index(slots.span());
  EXPECT_EQ(KeyIndex::kMissing, index.Find(8));
  const std::vector<int64_t> keys = {8, 7, 9};
  std::vector<int64_t> rows(3);
  index.FindBatch(keys, rows);
  EXPECT_EQ((std::vector<int64_t>{KeyIndex::kMissing, 0, KeyIndex::kMissing}), rows);
}

TEST(KeyIndexTest, ReadersSeeOnlyCompleteSlotsWhileTheWriterInserts) {
  constexpr int64_t kKeys = 50000, kBatch = 500;
  Slots slots(KeyIndex::SlotsFor(kKeys));
  KeyIndex index(slots.span());
  int64_t inserted = 0;  // atomic
  std::vector<std::thread> readers;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      std::vector<int64_t> keys(1000), rows(1000);
      int64_t known = 0, wrong = 0;
      while (known < kKeys) {
        known = __atomic_load_n(&inserted, __ATOMIC_ACQUIRE);
        for (int64_t& key : keys) key = static_cast<int64_t>(random() % kKeys) * 3;
        index.FindBatch(keys, rows);
        for (size_t i = 0; i < keys.size(); ++i) {
          const int64_t expected = keys[i] / 3;
          for (const int64_t row : {index.Find(keys[i]), rows[i]}) {
            if (row != expected && (row != KeyIndex::kMissing || expected < known)) ++wrong;
          }
        }
      }
      EXPECT_EQ(0, wrong);
    });
  }
  // By turns one by one and together.
  std::vector<int64_t> batch;
  for (int64_t first = 0; first < kKeys; first += kBatch) {
    batch.clear();
    for (int64_t key = first; key < first + kBatch; ++key) batch.push_back(key * 3);
    if (first / kBatch % 2 == 0) {
      InsertBatch(&index, batch, first);
    } else {
      for (int64_t i = 0; i < kBatch; ++i) index.Insert(batch[static_cast<size_t>(i)], first + i);
    }
    __atomic_store_n(&inserted, first + kBatch, __ATOMIC_RELEASE);
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace tfhybrid::key_index_test
