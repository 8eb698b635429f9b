// Engines of several hosts in one process, whose tables are sharded.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/exchange/row_frames.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDim = 2;
constexpr Placement kSharded = {PlacementKind::kByKey, 0};
const UpdateChoices kChoices = {"leaders", "sum", "float32", "none", 0.0f};

Contribution OneSample() {
  Contribution contribution;
  contribution.samples = 1;
  return contribution;
}

// All start at zero and add 1 to each number of a key's row for each gradient of -1.
class ShardedTest : public testing::Test {
 protected:
  ~ShardedTest() override {
    for (const auto& engine : engines_) engine->Close();
    for (std::thread& relay : relays_) relay.join();
    if (held_ >= 0) close(held_);
  }

  // What goes between two engines instead of their connection.
  using Between = std::function<void(int64_t from, int64_t to, LinkPurpose, int sockets[2])>;

  // Passes on what a leader sends of updates to another one. `crosses` is told of each frame
  // before; if it says no, the connection ends.
  Between Relay(int64_t from, int64_t to, const std::function<bool(FrameKind)>& crosses) {
    return [=](int64_t source, int64_t target, LinkPurpose purpose, int sockets[2]) {
      if (source != from || target != to || purpose != LinkPurpose::kUpdates) return;
      int beyond[2];
      ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, beyond));
      relays_.emplace_back([crosses, in = sockets[1], out = beyond[0]] {
        Connection near(in, "the source", Status::Ok), far(out, "the target", Status::Ok);
        for (Result<Frame> frame = near.Receive(); frame.ok() && crosses(frame.value().kind);
             frame = near.Receive()) {
          if (!far.Send(frame.value().kind, {frame.value().payload.words()}).ok()) break;
        }
      });
      sockets[1] = beyond[1];
    };
  }

  void Open(int64_t hosts, const UpdateChoices& choices = kChoices,
            const Between& between = nullptr) {
    Topology topology = {std::vector<int64_t>(static_cast<size_t>(hosts)), 0};
    std::iota(topology.hosts.begin(), topology.hosts.end(), 0);
    for (int64_t host = 0; host < hosts; ++host) {
      topology.host = host;
      std::vector<std::string> reclaimed;
      engines_.push_back(Engine::Open({directory_.path(), "host" + std::to_string(host), 0,
                                       "rank " + std::to_string(host), kToken},
                                      topology, &reclaimed)
                             .Take());
      EXPECT_OK(engines_.back()->OpenPlaced({"item", kDim, {InitializerKind::kZeros, 0, 0}, 99},
                                            kSharded, 0));
      tables_.push_back(engines_.back()->Table("item").Take());
      EXPECT_OK(tables_.back()->writer->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    }
    for (int64_t from = 0; from < hosts; ++from) {
      for (int64_t to = 0; to < hosts; ++to) {
        if (from == to) continue;
        for (const LinkPurpose purpose :
             {LinkPurpose::kReads, LinkPurpose::kUpdates, LinkPurpose::kPasses}) {
          int sockets[2];
          ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
          if (between != nullptr) between(from, to, purpose, sockets);
          At(from)->Connect(to, purpose, sockets[0], "rank " + std::to_string(to));
          At(to)->Serve(from, purpose, sockets[1], "rank " + std::to_string(from));
        }
      }
    }
    for (const auto& engine : engines_) {
      updates_.push_back(
          engine->Update(engine->OpenUpdate("sgd", {"item"}, choices).Take()).Take());
    }
  }

  Engine* At(int64_t host) const { return engines_[static_cast<size_t>(host)].get(); }

  Status Post(size_t host, const std::vector<int64_t>& keys, float rate = 1.0f) const {
    const std::vector<float> gradients(keys.size() * kDim, -1.0f);
    return At(static_cast<int64_t>(host))
        ->Post(updates_[host], {{keys, gradients.data(), RowLayout::Array(kDim)}}, OneSample(),
               {{rate}}, RunInline);
  }
  // A step. Each host waits for the one before, as ranks do: until it is applied, its mailbox is
  // read.
  void Train(const std::vector<int64_t>& keys) const {
    for (size_t host = 0; host < engines_.size(); ++host) {
      ASSERT_OK(Wait(host));
      ASSERT_OK(Post(host, keys));
    }
  }
  // Those of the keys that a host owns.
  std::vector<int64_t> KeysOf(int64_t host, const std::vector<int64_t>& keys) const {
    std::vector<int64_t> owned;
    const auto allocation = At(0)->AllocationOf("item");
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(owned),
                 [&](int64_t key) { return allocation->OwnerOf(key) == host; });
    return owned;
  }
  Status Wait(size_t host) const {
    return At(static_cast<int64_t>(host))->WaitForVersion(*tables_[host], tables_[host]->posted);
  }
  Result<std::vector<float>> Read(size_t host, const std::vector<int64_t>& keys) const {
    TFHYBRID_RETURN_IF_ERROR(Wait(host));
    Engine* const engine = At(static_cast<int64_t>(host));
    TFHYBRID_ASSIGN_OR_RETURN(
        const auto fetched,
        engine->Fetch({{tables_[host], engine->AllocationOf("item"), keys}}, RunInline));
    std::vector<float> rows(keys.size() * kDim);
    fetched->Lookup(0, 0, static_cast<int64_t>(keys.size()),
                    RowCursor<float>(rows.data(), RowLayout::Array(kDim), 0));
    return rows;
  }

  TemporaryDirectory directory_;
  std::vector<std::shared_ptr<Engine>> engines_;
  OpenTables tables_;
  std::vector<UpdateInUse> updates_;
  std::vector<std::thread> relays_;
  int held_ = -1;  // a second descriptor of a connection
};

// Embeddings as an answer has them.
std::vector<float> FloatsOf(Span<const int64_t> words) {
  std::vector<float> floats(static_cast<size_t>(words.size()) * 2);
  std::memcpy(floats.data(), words.data(), floats.size() * sizeof(float));
  return floats;
}

std::vector<int64_t> WordsOf(const std::vector<float>& floats) {
  std::vector<int64_t> words(floats.size() / 2);
  std::memcpy(words.data(), floats.data(), floats.size() * sizeof(float));
  return words;
}

std::vector<int64_t> Keys(int64_t count) {
  std::vector<int64_t> keys(static_cast<size_t>(count));
  std::iota(keys.begin(), keys.end(), -count / 2);
  return keys;
}

TEST_F(ShardedTest, EachKeyHasItsRowOnItsOwnerAlone) {
  Open(3);
  const std::vector<int64_t> keys = Keys(300);
  for (int step = 0; step < 5; ++step) Train(keys);
  int64_t rows = 0;
  for (size_t host = 0; host < 3; ++host) {
    const auto read = Read(host, keys);
    ASSERT_OK(read.status());
    EXPECT_EQ(std::vector<float>(keys.size() * kDim, 15.0f), read.value());
    std::vector<uint8_t> found(keys.size());
    ASSERT_OK(tables_[host]->reader->FindKeys(keys, found.data()));
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool own = At(0)->AllocationOf("item")->OwnerOf(keys[i]) == static_cast<int64_t>(host);
      EXPECT_EQ(own, found[i] != 0) << keys[i];
    }
    rows += tables_[host]->reader->Stats().rows;
  }
  EXPECT_EQ(300, rows);
}

TEST_F(ShardedTest, AReaderBesideTrainingSeesEachOwnerAtOneVersion) {
  Open(2);
  // So many that their rows come in several parts.
  const std::vector<int64_t> keys = Keys(80'000);
  std::atomic<bool> done{false};
  const std::shared_ptr<const Allocation> allocation = At(0)->AllocationOf("item");
  const std::vector<int64_t> of_other = KeysOf(0, keys);
  std::thread reader([&] {
    while (!done) {
      // Of the version that is posted or a later one.
      const auto fetched = At(1)->Fetch({{tables_[1], allocation, of_other}}, RunInline);
      ASSERT_OK(fetched.status());
      std::vector<float> rows(of_other.size() * kDim);
      fetched.value()->Lookup(0, 0, static_cast<int64_t>(of_other.size()),
                              RowCursor<float>(rows.data(), RowLayout::Array(kDim), 0));
      EXPECT_EQ(std::vector<float>(rows.size(), rows[0]), rows);
    }
  });
  for (int step = 0; step < 30; ++step) Train(keys);
  for (size_t host = 0; host < 2; ++host) EXPECT_OK(Wait(host));
  done = true;
  reader.join();
}

// The first rows of an answer are on their way when an update changes all.
TEST_F(ShardedTest, RowsThatChangeWhileTheyAreSentAreSentAgain) {
  Open(2);
  const std::vector<int64_t> keys = KeysOf(1, Keys(200'000));
  int sockets[2];
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  Connection reader(sockets[0], "rank 1", Status::Ok);
  At(1)->Serve(0, LinkPurpose::kReads, sockets[1], "rank 0");
  const std::vector<int64_t> asked = ReadWords({{"item", kDim, 0, keys}});
  ASSERT_OK(reader.Send(FrameKind::kRead, {asked, keys}));
  const Result<Frame> part = reader.Receive();
  ASSERT_OK(part.status());
  EXPECT_EQ(FrameKind::kSomeRows, part.value().kind);
  EXPECT_LT(part.value().payload.size, static_cast<int64_t>(keys.size()) / 2);
  Train({keys[0], keys.back()});
  ASSERT_OK(Wait(1));
  // The next part fills the connection, and may have been looked up before.
  Result<Frame> frame = reader.Receive();
  if (frame.ok() && frame.value().kind == FrameKind::kSomeRows) frame = reader.Receive();
  ASSERT_OK(frame.status());
  EXPECT_EQ(FrameKind::kRows, frame.value().kind);
  const Span<const int64_t> words = frame.value().payload.words();
  ASSERT_EQ(static_cast<int64_t>(keys.size()) + 1, words.size());
  EXPECT_EQ(1, words[0]);  // the version
  const std::vector<float> rows = FloatsOf(words.subspan(1, words.size() - 1));
  EXPECT_EQ(2.0f, rows.front());
  EXPECT_EQ(0.0f, rows[kDim]);
  EXPECT_EQ(2.0f, rows.back());
}

// The test is the owner.
TEST_F(ShardedTest, ALookupTakesRowsInParts) {
  std::unique_ptr<Connection> owner;
  Open(2, kChoices, [&](int64_t from, int64_t, LinkPurpose purpose, int sockets[2]) {
    if (from != 0 || purpose != LinkPurpose::kReads) return;
    owner = std::make_unique<Connection>(sockets[1], "rank 0", Status::Ok);
    int closed[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, closed));
    close(closed[0]);
    sockets[1] = closed[1];
  });
  std::vector<int64_t> keys = KeysOf(1, Keys(50));
  keys.resize(3);
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> words = WordsOf(rows), version = {1};
  const auto part = [&](int64_t first, int64_t end) {
    return Span<const int64_t>(words).subspan(first, end - first);
  };
  using Frames = std::vector<std::pair<FrameKind, std::vector<Span<const int64_t>>>>;
  const auto answered = [&](const Frames& frames) {
    std::thread answering([&] {
      EXPECT_OK(owner->Receive().status());
      for (const auto& [kind, pieces] : frames) EXPECT_OK(owner->Send(kind, pieces));
    });
    auto found = Read(0, keys);
    answering.join();
    return found;
  };
  constexpr FrameKind kSome = FrameKind::kSomeRows, kRows = FrameKind::kRows;
  EXPECT_EQ(rows, answered({{kRows, {version, words}}}).value());
  EXPECT_EQ(rows,
            answered({{kSome, {part(0, 1)}}, {kSome, {part(1, 2)}}, {kRows, {version, part(2, 3)}}})
                .value());
  EXPECT_EQ(rows, answered({{kSome, {part(1, 3)}}, {kRows, {version, words}}}).value());
  const std::vector<int64_t> why =
      FailureWords(Status::Error(StatusCode::kDataLoss, "a record is damaged"));
  ExpectError(answered({{kSome, {part(0, 1)}}, {FrameKind::kFailure, {why}}}).status(),
              StatusCode::kDataLoss, {"rank 1: a record is damaged"});
  ExpectError(answered({{kSome, {part(0, 2)}}, {kSome, {part(0, 2)}}}).status(),
              StatusCode::kDataLoss, {"asked for 2 words", "Received: 2"});
}

TEST_F(ShardedTest, UpdatesOfTwoOptimizersMayComeInAnotherOrderOnEachHost) {
  Open(2);
  std::vector<UpdateInUse> others;
  for (const auto& engine : engines_) {
    EXPECT_OK(engine->OpenPlaced({"user", kDim, {InitializerKind::kZeros, 0, 0}, 99}, kSharded, 0));
    EXPECT_OK(engine->Table("user").Take()->writer->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    others.push_back(engine->Update(engine->OpenUpdate("other", {"user"}, kChoices).Take()).Take());
  }
  const std::vector<int64_t> keys = Keys(10);
  const std::vector<float> gradients(keys.size() * kDim, -1.0f);
  const auto other = [&](size_t host) {
    EXPECT_OK(engines_[host]->Post(others[host], {{keys, gradients.data(), RowLayout::Array(kDim)}},
                                   OneSample(), {{1.0f}}, RunInline));
  };
  EXPECT_OK(Post(0, keys));
  other(0);
  other(1);
  EXPECT_OK(Post(1, keys));
  for (size_t host = 0; host < 2; ++host) {
    EXPECT_OK(Wait(host));
    const auto user = engines_[host]->Table("user").Take();
    EXPECT_OK(engines_[host]->WaitForVersion(*user, 1));
  }
}

TEST_F(ShardedTest, NumbersThatDifferStopAllHosts) {
  Open(2);
  ASSERT_OK(Post(0, {1, 2}));
  ASSERT_OK(Post(1, {1, 2}, 0.5f));
  for (size_t host = 0; host < 2; ++host) {
    ExpectError(Wait(host), StatusCode::kFailedPrecondition, {"Learning rates", "differ"});
    EXPECT_EQ(0u, tables_[host]->reader->version());
  }
}

TEST_F(ShardedTest, APassDoesNotWaitForAnUpdateThatFailed) {
  Open(2);
  const std::vector<int64_t> keys = Keys(20);
  const std::vector<int32_t> last(keys.size(), 1);
  const auto asked = At(0)->PlanPass({{"item", keys, last.data()}});
  ASSERT_OK(asked.status());
  const auto pass = At(0)->passes().Announce(asked.value().requested, 2, false);
  ASSERT_OK(pass.status());
  ASSERT_OK(At(0)->passes().Begin(pass.value(), 0));
  ASSERT_OK(Read(0, keys).status());
  ASSERT_OK(Post(0, keys));
  ASSERT_OK(Post(1, keys, 0.5f));
  EXPECT_EQ(StatusCode::kFailedPrecondition, Wait(0).code());
  // As a caller that is content with what was before the update.
  const auto fetched = At(0)->Fetch({{tables_[0], At(0)->AllocationOf("item"), keys}}, RunInline);
  ExpectError(fetched.status(), StatusCode::kFailedPrecondition, {"Learning rates", "differ"});
}

TEST_F(ShardedTest, WhatWasDecidedHoldsThoughOneOwnerIsLostMeanwhile) {
  Open(3, kChoices, Relay(0, 1, [](FrameKind kind) { return kind != FrameKind::kCommit; }));
  const std::vector<int64_t> keys = Keys(60);
  // Host 2 will use its rows after the update.
  const std::vector<int32_t> last(keys.size(), 1);
  const auto asked = At(2)->PlanPass({{"item", keys, last.data()}});
  ASSERT_OK(asked.status());
  const auto pass = At(2)->passes().Announce(asked.value().requested, 2, false);
  ASSERT_OK(pass.status());
  ASSERT_OK(At(2)->passes().Begin(pass.value(), 0));
  ASSERT_OK(Read(2, keys).status());
  Train(keys);
  ASSERT_OK(Wait(0));
  ASSERT_OK(Wait(2));
  EXPECT_EQ(StatusCode::kPeerDied, Wait(1).code());
  EXPECT_EQ(1u, tables_[0]->reader->version());
  EXPECT_EQ(0u, tables_[1]->reader->version());
  EXPECT_EQ(1u, tables_[2]->reader->version());
  // A pass that waits for rows of the lost owner, and a read.
  ASSERT_OK(At(2)->passes().Begin(pass.value(), 1));
  ExpectError(Read(2, keys).status(), StatusCode::kPeerDied, {"did not come", "rank 0"});
  EXPECT_FALSE(Read(0, keys).ok());
}

TEST_F(ShardedTest, ADecisionThatCannotBeSentToOneOwnerIsSentToTheOthers) {
  const Between relay = Relay(1, 0, [this](FrameKind kind) {
    // Host 1 has staged by now, and host 0 cannot have decided.
    if (kind == FrameKind::kStaged) shutdown(held_, SHUT_RDWR);
    return true;
  });
  Open(3, kChoices, [&](int64_t from, int64_t to, LinkPurpose purpose, int sockets[2]) {
    if (from == 0 && to == 1 && purpose == LinkPurpose::kUpdates) held_ = dup(sockets[0]);
    relay(from, to, purpose, sockets);
  });
  Train(Keys(60));
  ASSERT_OK(Wait(0));
  ASSERT_OK(Wait(2));  // the last one that host 0 tells
  EXPECT_EQ(StatusCode::kPeerDied, Wait(1).code());
  EXPECT_EQ(1u, tables_[0]->reader->version());
  EXPECT_EQ(0u, tables_[1]->reader->version());
  EXPECT_EQ(1u, tables_[2]->reader->version());
}

TEST_F(ShardedTest, WhatARankCannotBringStopsAllHosts) {
  Open(3);
  ASSERT_OK(Post(0, {1}));
  ASSERT_OK(Post(1, {1}));
  Contribution failed;
  failed.failure = "a gradient of rank 2 is not finite";
  ASSERT_OK(At(2)->Post(updates_[2], {{{}, nullptr, RowLayout::Array(kDim)}}, failed, {{1.0f}},
                        RunInline));
  for (size_t host = 0; host < 3; ++host) {
    ExpectError(Wait(host), StatusCode::kFailedPrecondition, {"rank 2 is not finite"});
    EXPECT_EQ(0u, tables_[host]->reader->version());
  }
}

TEST_F(ShardedTest, AnOwnerThatIsGoneIsNamedToReadersAndUpdates) {
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

TEST_F(ShardedTest, ClippingByNormSeesTheGradientsOfAllOwners) {
  Open(3, {"leaders", "sum", "float32", "norm", 1.0f});
  const std::vector<int64_t> keys = Keys(100);
  Train(keys);
  const auto rows = Read(1, keys);
  ASSERT_OK(rows.status());
  // Three gradients of -1 for each of 200 numbers, to a norm of 1.
  for (const float number : rows.value()) EXPECT_NEAR(1.0 / std::sqrt(200.0), number, 1e-6);
  for (size_t host = 0; host < 3; ++host) {
    EXPECT_EQ(tables_[0]->reader->clip_factor(), tables_[host]->reader->clip_factor());
  }
}

TEST_F(ShardedTest, WhatCannotBeAskedForIsAnswered) {
  Open(2);
  ExpectError(At(0)->Scan(1, {"shop", kDim, -1, 5}).status(), StatusCode::kInvalidArgument,
              {"numbered from 0"});
  ExpectError(At(0)->Scan(1, {"item", 3, 0, 5}).status(), StatusCode::kInvalidArgument,
              {"embeddings of 2 floats here. Received: 3"});
  ExpectError(At(0)->Scan(0, {"item", kDim, 0, 5}).status(), StatusCode::kInvalidArgument,
              {"another of 2 hosts"});
  Train(Keys(40));
  ASSERT_OK(Wait(1));
  const auto scanned = At(0)->Scan(1, {"item", kDim, 2, 5});
  ASSERT_OK(scanned.status());
  EXPECT_EQ(5u, scanned.value().keys.size());
  EXPECT_EQ(tables_[1]->reader->Stats().rows, scanned.value().table_rows);
  EXPECT_EQ(tables_[1]->reader->Stats().bytes, scanned.value().table_bytes);
  EXPECT_EQ(std::vector<float>(10, 2.0f), scanned.value().embeddings);
  const auto beyond = At(0)->Scan(1, {"item", kDim, 1000, 5});
  ASSERT_OK(beyond.status());
  EXPECT_TRUE(beyond.value().keys.empty());
}

}  // namespace
}  // namespace tfhybrid
