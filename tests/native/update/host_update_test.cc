#include "core/update/host_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid::host_update_test {
namespace {

// One table of dim 2 whose rows start at zero, and an update of two ranks that sums.
class HostUpdateTest : public testing::Test {
 protected:
  StoreConfig Config(int local_rank) const {
    return {directory_.path(), "job", local_rank, "rank " + std::to_string(local_rank), kToken};
  }
  void Lead() {
    std::vector<std::string> reclaimed;
    leader_ = Store::Create(Config(0), &reclaimed).Take();
    TableConfig config = ConfigOf("item", 2);
    config.initializer = {};
    table_ = leader_->OpenNamed(config, 0).Take();
  }
  void LeadWith(OptimizerKind kind) {
    Lead();
    ASSERT_OK(table_->writer->SetOptimizer(OptimizerOf(kind)));
  }
  std::shared_ptr<Store> Join() const { return Store::Attach(Config(1)).Take(); }

  static UpdateSettings Settings(Exchange exchange) {
    UpdateSettings settings = {{{"item"}, {2}}, {0, 0}, Reduction::kSum, exchange};
    settings.local_ranks = 2;
    return settings;
  }
  static std::shared_ptr<HostUpdate> Opened(const std::shared_ptr<Store>& store) {
    return HostUpdate::Open(store, "sgd", Settings(Exchange::kLeaders)).Take();
  }

  static void Fill(const MessageBuilder& message, const std::vector<int64_t>& keys,
                   float gradient) {
    std::copy(keys.begin(), keys.end(), message.keys(0));
    std::fill_n(message.gradients(0), 2 * keys.size(), gradient);
  }
  static Status Post(HostUpdate* update, const std::vector<int64_t>& keys, float gradient) {
    const std::vector<int64_t> counts = {static_cast<int64_t>(keys.size())};
    return update->Post(counts,
                        [&](const MessageBuilder& message) { Fill(message, keys, gradient); });
  }
  // With learning rate -1 plain SGD adds the gradients.
  Status Lead(HostUpdate* update) const {
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<GradientMessage> messages, update->Collect());
    return Apply(update, messages);
  }
  Status Apply(HostUpdate* update, const std::vector<GradientMessage>& messages) const {
    const std::vector<float> rates = {-1.0f};
    return update->Apply(messages, {rates}, {table_->writer.get()}, RunInline);
  }
  // The first float of each row.
  std::vector<float> Rows(const std::vector<int64_t>& keys) const {
    std::vector<float> rows(2 * keys.size()), firsts;
    EXPECT_OK(table_->reader->Lookup(keys, rows.data()));
    for (size_t i = 0; i < rows.size(); i += 2) firsts.push_back(rows[i]);
    return firsts;
  }

  TemporaryDirectory directory_;
  std::shared_ptr<Store> leader_;
  std::shared_ptr<OpenTable> table_;
};

TEST_F(HostUpdateTest, RanksPostAndTheLeaderAppliesOnce) {
  LeadWith(OptimizerKind::kSgd);
  const auto first = Opened(leader_);
  ChildProcess rank([&] {
    const auto second = Opened(Join());
    EXPECT_OK(Post(second.get(), {2, 3}, 10.0f));
  });
  ASSERT_OK(Post(first.get(), {1, 2}, 1.0f));
  ASSERT_OK(Lead(first.get()));
  EXPECT_EQ(1u, table_->reader->version());
  EXPECT_EQ((std::vector<float>{1, 11, 10, 0}), Rows({1, 2, 3, 4}));
}

TEST_F(HostUpdateTest, MessagesGrowAndShrink) {
  LeadWith(OptimizerKind::kSgd);
  const auto other = Join();
  const auto second = Opened(other), first = Opened(leader_);
  float sum = 0;
  for (const int64_t keys : {1, 30000, 2, 60000, 0, 90000}) {
    ASSERT_OK(Post(second.get(), KeysBetween(0, keys), 2.0f));
    ASSERT_OK(Post(first.get(), {0}, 1.0f));
    ASSERT_OK(Lead(first.get()));
    sum += keys > 0 ? 3.0f : 1.0f;
    EXPECT_EQ(sum, Rows({0})[0]);
  }
  EXPECT_EQ(90000, table_->reader->Stats().rows);
  EXPECT_EQ((std::vector<float>{6, 4, 2}), Rows({29999, 59999, 89999}));
}

TEST_F(HostUpdateTest, LeaderPostsForAll) {
  LeadWith(OptimizerKind::kSgd);
  const auto update = HostUpdate::Open(leader_, "gathered", Settings(Exchange::kAllRanks)).Take();
  const MessageSchema& schema = update->settings().schema;
  std::vector<int64_t> all;
  for (const float gradient : {1.0f, 10.0f}) {
    const std::vector<int64_t> counts = {2};
    std::vector<int64_t> words(static_cast<size_t>(MessageWords(schema, counts)));
    Fill(MessageBuilder(schema, counts, words), {5, static_cast<int64_t>(gradient)}, gradient);
    all.insert(all.end(), words.begin(), words.end());
  }
  ASSERT_OK(update->PostAll(all));
  const auto messages = update->ReadAll();
  ASSERT_OK(messages);
  ASSERT_OK(Apply(update.get(), messages.value()));
  EXPECT_EQ((std::vector<float>{11, 1, 10}), Rows({5, 1, 10}));
}

TEST_F(HostUpdateTest, DeadRankIsNoticed) {
  LeadWith(OptimizerKind::kSgd);
  const auto update = Opened(leader_);
  auto rank = std::make_unique<ChildProcess>([&] {
    auto store = Join();
    EXPECT_OK(Post(Opened(store).get(), {1}, 1.0f));
    new std::shared_ptr<Store>(std::move(store));  // kept until the process is killed
  });
  rank->Kill();
  // What it posted before it died counts.
  ASSERT_OK(Post(update.get(), {1}, 1.0f));
  ASSERT_OK(Lead(update.get()));
  EXPECT_EQ(2.0f, Rows({1})[0]);
  ASSERT_OK(Post(update.get(), {1}, 1.0f));
  ExpectError(Lead(update.get()), StatusCode::kPeerDied, {"rank 1"});
  EXPECT_EQ(2.0f, Rows({1})[0]);
}

TEST_F(HostUpdateTest, RankThatDiedBeforeItsFirstMessageIsNoticed) {
  LeadWith(OptimizerKind::kSgd);
  const auto update = Opened(leader_);
  ChildProcess rank([&] { new std::shared_ptr<Store>(Join()); });
  rank.Kill();
  ASSERT_OK(Post(update.get(), {1}, 1.0f));
  ExpectError(Lead(update.get()), StatusCode::kPeerDied, {"rank 1"});
  EXPECT_EQ(0u, table_->reader->version());
}

TEST_F(HostUpdateTest, RankThatCannotPostTellsTheLeaderWhy) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=4m", [&] {
    LeadWith(OptimizerKind::kSgd);
    const auto other = Join();
    const auto second = Opened(other), first = Opened(leader_);
    ExpectError(Post(second.get(), KeysBetween(0, 1000000), 1.0f), StatusCode::kResourceExhausted,
                {"gradients"});
    ASSERT_OK(Post(first.get(), {1}, 1.0f));
    ExpectError(Lead(first.get()), StatusCode::kFailedPrecondition, {"No room", "gradients"});
    EXPECT_EQ(0, table_->reader->Stats().rows);
    // One that fits, later, is applied.
    ASSERT_OK(Post(second.get(), {1}, 1.0f));
    ASSERT_OK(Post(first.get(), {1}, 1.0f));
    ASSERT_OK(Lead(first.get()));
    EXPECT_EQ(2.0f, Rows({1})[0]);
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(HostUpdateTest, MessageOfAnotherModelIsRefused) {
  LeadWith(OptimizerKind::kSgd);
  const auto other = Join();
  UpdateSettings settings = Settings(Exchange::kLeaders);
  settings.schema.dims = {3};
  const auto second = HostUpdate::Open(other, "sgd", settings).Take();
  const auto first = Opened(leader_);
  const std::vector<int64_t> none = {0};
  ASSERT_OK(second->Post(none, [](const MessageBuilder&) {}));
  ASSERT_OK(Post(first.get(), {1}, 1.0f));
  ExpectError(Lead(first.get()), StatusCode::kInvalidArgument, {"other tables"});
}

// The journal is made for the first update: its lanes have room for the state of a later optimizer.
TEST_F(HostUpdateTest, OptimizerMayComeAfterTheFirstAttempt) {
  Lead();
  const auto other = Join();
  const auto second = Opened(other), first = Opened(leader_);
  ASSERT_OK(Post(second.get(), {1}, 1.0f));
  ASSERT_OK(Post(first.get(), {1}, 1.0f));
  ExpectError(Lead(first.get()), StatusCode::kFailedPrecondition, {"no optimizer"});
  ASSERT_OK(table_->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
  ASSERT_OK(Post(second.get(), KeysBetween(0, 3000), 1.0f));
  ASSERT_OK(Post(first.get(), {1}, 1.0f));
  ASSERT_OK(Lead(first.get()));
  const std::vector<float> rows = Rows(KeysBetween(2, 3000));
  EXPECT_EQ(std::vector<float>(rows.size(), rows[0]), rows);
}

TEST_F(HostUpdateTest, EndsWithItsStore) {
  LeadWith(OptimizerKind::kSgd);
  const auto update = Opened(leader_);
  ASSERT_OK(Post(update.get(), {1}, 1.0f));
  leader_.reset();
  ExpectError(update->Collect().status(), StatusCode::kFailedPrecondition, {"has ended"});
}

}  // namespace
}  // namespace tfhybrid::host_update_test
