#include "core/exchange/batch_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/placement/key_handle.h"
#include "shm/status_asserts.h"

namespace tfhybrid {
namespace {

constexpr int64_t kOwner = 2;

// The keys of a batch of table "item" on the owner.
BatchKeys::Batch Of(int64_t rank, std::vector<int64_t> keys, bool trains = true) {
  return {"run/" + std::to_string(keys.front()),
          "digest",
          rank,
          trains,
          0,
          {{"item", std::move(keys)}}};
}

int64_t HandleOf(int64_t ticket, int64_t index) { return KeyHandle{ticket, kOwner, index}.Word(); }

TEST(KeyHandleTest, SaysWhoOwnsAKeyAndWhere) {
  const KeyHandle last = KeyHandle::Of(
      KeyHandle{KeyHandle::kTickets - 1, Allocation::kSlots - 1, KeyHandle::kMaxKeys - 1}.Word());
  EXPECT_EQ(last.ticket, KeyHandle::kTickets - 1);
  EXPECT_EQ(last.owner, Allocation::kSlots - 1);
  EXPECT_EQ(last.index, KeyHandle::kMaxKeys - 1);
  for (const int64_t key : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN, int64_t{1} << 61}) {
    EXPECT_EQ(KeyHandle::Is(key), key == INT64_MAX) << key;
  }
  EXPECT_TRUE(KeyHandle::Before(KeyHandle::kTickets - 1, 0));
  EXPECT_FALSE(KeyHandle::Before(0, KeyHandle::kTickets - 1));
}

TEST(BatchKeysTest, ABatchComesAgainWithTheSameContentOnly) {
  BatchKeys held(kOwner);
  ASSERT_OK(held.Put(4, Of(0, {7, 8})));
  EXPECT_OK(held.Put(4, Of(0, {7, 8})));
  EXPECT_EQ(held.held().batches, 1);
  EXPECT_EQ(held.held().bytes, 16);
  BatchKeys::Batch other = Of(0, {7, 8});
  other.digest = "other";
  EXPECT_EQ(held.Put(4, other).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(held.Put(4, Of(0, {9})).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(held.Put(KeyHandle::kTickets, Of(0, {9})).code(), StatusCode::kInvalidArgument);
  held.Drop(4);
  held.Drop(4);
  EXPECT_EQ(held.held().bytes, 0);
  EXPECT_OK(held.Put(4, Of(0, {9})));
}

TEST(BatchKeysTest, AnotherOwnerOfTheRowsHoldsTheSameBatches) {
  BatchKeys held(kOwner);
  BatchKeys::Batch stale = Of(3, {INT64_MIN, -1, INT64_MAX}, false);
  stale.staleness = 4;
  stale.keys["user"] = {};
  ASSERT_OK(held.Put(4, stale));
  ASSERT_OK(held.Put(KeyHandle::kTickets - 1, Of(0, {7, 8})));
  const std::vector<int64_t> words = held.Words();
  BatchKeys other(kOwner);
  ASSERT_OK(other.PutAll(words));
  EXPECT_EQ(other.Words(), words);
  EXPECT_EQ(other.held().bytes, held.held().bytes);
  EXPECT_OK(other.Put(4, stale));  // sent again
  EXPECT_EQ(other.Of(4)->staleness, 4u);
  EXPECT_FALSE(other.Of(4)->trains);
  EXPECT_OK(other.PutAll({}));
}

TEST(BatchKeysTest, BatchesThatAreCutShortAreRefused) {
  BatchKeys held(kOwner);
  ASSERT_OK(held.Put(4, Of(3, {7, 8})));
  const std::vector<int64_t> words = held.Words();
  for (size_t size = 1; size < words.size(); ++size) {
    BatchKeys other(kOwner);
    const Span<const int64_t> some(words.data(), static_cast<int64_t>(size));
    EXPECT_EQ(other.PutAll(some).code(), StatusCode::kDataLoss) << size;
    EXPECT_EQ(other.held().batches, 0) << size;
  }
}

TEST(BatchKeysTest, RowsOfSeveralBatchesLackAsFewUpdatesAsAnyOfThem) {
  BatchKeys held(kOwner);
  for (const int64_t staleness : {3, 1, 4}) {
    BatchKeys::Batch batch = Of(0, {7});
    batch.staleness = static_cast<uint64_t>(staleness);
    ASSERT_OK(held.Put(staleness, std::move(batch)));
  }
  const auto staleness = [&](const std::vector<int64_t>& handles) {
    std::vector<int64_t> keys(handles.size());
    const Result<uint64_t> found = held.Find("item", handles, keys.data());
    EXPECT_OK(found.status());
    return found.ok() ? found.value() : 99;
  };
  EXPECT_EQ(staleness({}), 0u);
  EXPECT_EQ(staleness({HandleOf(4, 0)}), 4u);
  EXPECT_EQ(staleness({HandleOf(4, 0), HandleOf(1, 0), HandleOf(3, 0)}), 1u);
}

TEST(BatchKeysTest, WhatIsNoKeyHandleHereIsRefused) {
  BatchKeys held(kOwner);
  ASSERT_OK(held.Put(4, Of(0, {7})));
  ASSERT_OK(held.Put(5, Of(0, {8}, false)));
  int64_t key = 0;
  const auto find = [&](const std::string& table, int64_t handle) {
    return held.Find(table, Span<const int64_t>(&handle, 1), &key).status().code();
  };
  EXPECT_EQ(find("item", HandleOf(4, 0)), StatusCode::kOk);
  EXPECT_EQ(key, 7);
  EXPECT_EQ(find("item", HandleOf(5, 0)), StatusCode::kOk);
  EXPECT_EQ(find("item", HandleOf(4, 1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(find("user", HandleOf(4, 0)), StatusCode::kInvalidArgument);
  EXPECT_EQ(find("item", HandleOf(6, 0)), StatusCode::kNotFound);
  EXPECT_EQ(find("item", 7), StatusCode::kInvalidArgument);
  EXPECT_EQ(find("item", KeyHandle{4, kOwner + 1, 0}.Word()), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tfhybrid
