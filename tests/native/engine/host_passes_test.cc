#include "core/engine/host_passes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/engine_job.h"
#include "engine/sharded_hosts.h"

namespace tfhybrid::sharded_hosts {
namespace {

using HostPassesTest = ShardedHosts;

bool IsInAPass(RankPasses* passes, int64_t key) {
  const std::vector<RankPasses::PassView> views = passes->Of("item");
  return std::any_of(views.begin(), views.end(),
                     [key](const RankPasses::PassView& view) { return view.Find(key) >= 0; });
}

TEST_F(HostPassesTest, APassDoesNotWaitForAnUpdateThatFailed) {
  Open(2);
  const std::vector<int64_t> keys = Keys(20);
  const std::vector<int32_t> last(keys.size(), 1);
  const auto asked = At(0)->passes().Plan({{"item", keys, last.data()}});
  ASSERT_OK(asked.status());
  const auto pass = At(0)->passes().rank().Announce(asked.value().requested, 2, false);
  ASSERT_OK(pass.status());
  ASSERT_OK(At(0)->passes().rank().Begin(pass.value(), 0));
  ASSERT_OK(Read(0, keys).status());
  ASSERT_OK(Post(0, keys));
  ASSERT_OK(Post(1, keys, 0.5f));
  EXPECT_EQ(StatusCode::kFailedPrecondition, Wait(0).code());
  // As a caller that is content with what was before the update.
  ExpectError(Lookup(0, keys).status(), StatusCode::kFailedPrecondition,
              {"Learning rates", "differ"});
}

TEST_F(HostPassesTest, APassHasTheKeysOfOtherHostsAlone) {
  Open(2);
  const std::vector<int64_t> keys = Keys(40), others = KeysOf(1, keys);
  const std::vector<int32_t> batch_of(keys.size(), 0);
  HostPasses& passes = At(0)->passes();
  const auto asked = passes.Plan({{"item", keys, batch_of.data()}});
  ASSERT_OK(asked.status());
  ASSERT_EQ(1u, asked.value().requested.size());
  EXPECT_EQ(others.size(), asked.value().requested.front().keys.size());
  const auto number = passes.Announce(asked.value(), 1, false);
  ASSERT_OK(number.status());
  EXPECT_FALSE(IsInAPass(&passes.rank(), others.front())) << "before its first batch";
  ASSERT_OK(passes.BeginBatch(number.value(), 0));
  for (const int64_t key : others) EXPECT_TRUE(IsInAPass(&passes.rank(), key)) << key;
  ASSERT_OK(Read(0, keys).status());
  EXPECT_EQ(static_cast<int64_t>(others.size()), passes.rank().counts().hits);
  EXPECT_EQ(static_cast<int64_t>(others.size()), passes.CountOf(PassCounter::kFetched));
  ASSERT_OK(passes.End(number.value()));
  EXPECT_FALSE(IsInAPass(&passes.rank(), others.front()));
}

TEST(OneHostPassesTest, AHostAloneKeepsNone) {
  const TemporaryDirectory directory;
  const EngineJob job(directory.path(), "job");
  HostPasses& passes = job.engine->passes();
  EXPECT_TRUE(passes.rank().Of("item").empty());
  EXPECT_EQ(0, passes.CountOf(PassCounter::kAsked));
  Frame frame = {FrameKind::kFresh, WordBuffer::OfSize(0)};
  ExpectError(passes.Take(0, std::move(frame)), StatusCode::kFailedPrecondition, {"keeps passes"});
  const std::vector<int64_t> keys = {1, 2};
  const std::vector<int32_t> batch_of = {0, 0};
  const auto asked = passes.Plan({{"item", keys, batch_of.data()}});
  ASSERT_OK(asked.status());
  EXPECT_TRUE(asked.value().requested.empty());
  ExpectError(passes.Plan({{"items", keys, batch_of.data()}}).status(), StatusCode::kNotFound,
              {"'items'"});
}

}  // namespace
}  // namespace tfhybrid::sharded_hosts
