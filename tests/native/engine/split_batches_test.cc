#include "core/engine/split_batches.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/placement/key_handle.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid::split_batches_test {
namespace {

constexpr int64_t kDim = 3, kNode = 1, kTicket = 7;

// A trainer, host 0, and an embedding node, host 1.
class SplitBatchesTest : public testing::Test {
 protected:
  std::shared_ptr<Engine> Open(int64_t host) const {
    std::vector<std::string> reclaimed;
    auto engine = Engine::Open({directory_.path(), "host" + std::to_string(host), 0,
                                "host " + std::to_string(host), kToken},
                               {{0}, host, 1}, &reclaimed)
                      .Take();
    EXPECT_OK(engine->tables().Open({"item", kDim, {InitializerKind::kUniform, -1, 1}, 99},
                                    {PlacementKind::kByKey, 0}, 0));
    return engine;
  }
  // Lets the node send the trainer rows unasked.
  void Connect() const {
    int sockets[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    trainer_->batches().received().Add(kNode, trainer_->Adopt(sockets[0], "the node"));
    node_->batches().sender().Add(0, node_->Adopt(sockets[1], "the trainer"));
  }
  static int64_t Handle(int64_t index, int64_t owner = kNode) {
    return KeyHandle{kTicket, owner, index}.Word();
  }

  TemporaryDirectory directory_;
  const std::shared_ptr<Engine> trainer_ = Open(0), node_ = Open(kNode);
};

TEST_F(SplitBatchesTest, RowsAreSentUnaskedAndTheirLookupIsRemembered) {
  Connect();
  const std::vector<int64_t> keys = {40, 50}, handles = {Handle(1), Handle(0), Handle(1)};
  SplitBatches &batches = trainer_->batches(), &of_node = node_->batches();
  EXPECT_TRUE(batches.TakeLookedUp(9).empty());
  batches.received().Expect(kTicket, {{"item", 0}}, 2);
  ASSERT_OK(of_node.keys().Put(kTicket, {"run-1", "digest", 0, true, 2, {{"item", keys}}}));
  of_node.sender().Announce(0, kTicket, {{"item", 0}});
  const auto table = trainer_->tables().Get("item").Take();
  const auto fetched = trainer_->owners().Fetch(
      {{table, trainer_->tables().AllocationOf("item"), handles, true}}, RunInline);
  ASSERT_OK(fetched.status());
  std::vector<float> rows(3 * kDim), expected(rows.size());
  fetched.value()->Lookup(0, 0, 3, RowCursor<float>(rows.data(), RowLayout::Array(kDim), 0));
  const std::vector<int64_t> in_order = {50, 40, 50};
  ASSERT_OK(node_->tables().Get("item").Take()->reader->Lookup(in_order, expected.data()));
  EXPECT_EQ(expected, rows);
  EXPECT_TRUE(batches.TakeLookedUp(0).empty());
  EXPECT_EQ(std::vector<int64_t>{kTicket}, batches.TakeLookedUp(9));
  EXPECT_TRUE(batches.TakeLookedUp(9).empty());
  const std::vector<RowRead> reads = batches.TakeReads(9);
  ASSERT_EQ(1u, reads.size());
  EXPECT_EQ(kTicket, reads[0].ticket);
  EXPECT_EQ("item", reads[0].table);
  EXPECT_EQ(kNode, reads[0].owner);
  EXPECT_TRUE(batches.TakeReads(9).empty());
}

TEST_F(SplitBatchesTest, AnUpdateIsOfKeyHandlesOfOwners) {
  SplitBatches& batches = trainer_->batches();
  EXPECT_FALSE(batches.uses_key_handles());
  batches.UseKeyHandles();
  EXPECT_TRUE(batches.uses_key_handles());
  const auto check = [&](const std::vector<int64_t>& keys) {
    return batches.Check({{keys, nullptr, RowLayout::Array(kDim)}});
  };
  EXPECT_OK(check({Handle(0), Handle(1)}));
  for (const int64_t key : {int64_t{5}, Handle(0, 0), Handle(0, 2)}) {
    ExpectError(check({Handle(0), key}), StatusCode::kInvalidArgument,
                {"Received: key " + std::to_string(key)});
  }
}

}  // namespace
}  // namespace tfhybrid::split_batches_test
