#include "core/engine/owner_exchange.h"

#include <vector>

#include "engine/sharded_hosts.h"

namespace tfhybrid::sharded_hosts {
namespace {

using OwnerExchangeTest = ShardedHosts;

TEST_F(OwnerExchangeTest, AnOwnerThatIsGoneIsNamedToReadersAndUpdates) {
  Open(2);
  const std::vector<int64_t> keys = Keys(50);
  Train(keys);
  ASSERT_OK(Wait(0));
  At(1)->Close();
  ExpectError(Read(0, keys).status(), StatusCode::kPeerDied, {"rank 1"});
  ASSERT_OK(Post(0, keys));
  ExpectError(Wait(0), StatusCode::kPeerDied, {"rank 1"});
  EXPECT_EQ(1u, tables_[0]->reader->version());
}

TEST_F(OwnerExchangeTest, WhatCannotBeAskedForIsAnswered) {
  Open(2);
  ExpectError(At(0)->owners().Scan(1, {"shop", kDim, -1, 5}).status(), StatusCode::kInvalidArgument,
              {"numbered from 0"});
  ExpectError(At(0)->owners().Scan(1, {"item", 3, 0, 5}).status(), StatusCode::kInvalidArgument,
              {"embeddings of 2 floats here. Received: 3"});
  ExpectError(At(0)->owners().Scan(0, {"item", kDim, 0, 5}).status(), StatusCode::kInvalidArgument,
              {"another of 2 hosts"});
  Train(Keys(40));
  ASSERT_OK(Wait(1));
  const auto scanned = At(0)->owners().Scan(1, {"item", kDim, 2, 5});
  ASSERT_OK(scanned.status());
  EXPECT_EQ(5u, scanned.value().keys.size());
  EXPECT_EQ(tables_[1]->reader->Stats().rows, scanned.value().table_rows);
  EXPECT_EQ(tables_[1]->reader->Stats().bytes, scanned.value().table_bytes);
  EXPECT_EQ(std::vector<float>(10, 2.0f), scanned.value().embeddings);
  const auto beyond = At(0)->owners().Scan(1, {"item", kDim, 1000, 5});
  ASSERT_OK(beyond.status());
  EXPECT_TRUE(beyond.value().keys.empty());
}

TEST_F(OwnerExchangeTest, ReadersAreCountedUntilTheyEnd) {
  Open(2);
  EXPECT_EQ(1, At(1)->owners().service().CountOfReaders());
  At(0)->owners().links().ShutReads();
  while (At(1)->owners().service().CountOfReaders() > 0) std::this_thread::yield();
  ExpectError(Read(0, KeysOf(1, Keys(10))).status(), StatusCode::kPeerDied, {"rank 1"});
  // Updates go on.
  Train(Keys(10));
  EXPECT_OK(Wait(0));
  EXPECT_OK(Wait(1));
}

}  // namespace
}  // namespace tfhybrid::sharded_hosts
