// Steps and lookups of hosts whose tables are sharded.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/exchange/row_frames.h"
#include "engine/sharded_hosts.h"

namespace tfhybrid::sharded_hosts {
namespace {

using ShardedTest = ShardedHosts;

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
      const bool own =
          At(0)->tables().AllocationOf("item")->OwnerOf(keys[i]) == static_cast<int64_t>(host);
      EXPECT_EQ(own, found[i] != 0) << keys[i];
    }
    rows += tables_[host]->reader->Stats().rows;
  }
  EXPECT_EQ(300, rows);
}

TEST_F(ShardedTest, AReaderBesideTrainingSeesEachOwnerAtOneVersion) {
  Open(2);
  // So many that their rows come in several parts.
  const std::vector<int64_t> keys = Keys(220'000);
  std::atomic<bool> done{false};
  const std::vector<int64_t> of_other = KeysOf(0, keys);
  std::thread reader([&] {
    while (!done) {
      // Of the version that is posted or a later one.
      const auto read = Lookup(1, of_other);
      ASSERT_OK(read.status());
      const std::vector<float>& rows = read.value();
      EXPECT_EQ(std::vector<float>(of_other.size() * kDim, rows[0]), rows);
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
  const std::vector<int64_t> keys = KeysOf(1, Keys(500'000));
  int sockets[2];
  ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
  Connection reader(sockets[0], "rank 1", Status::Ok);
  At(1)->owners().service().Serve(0, LinkPurpose::kReads, At(1)->Adopt(sockets[1], "rank 0"));
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
    EXPECT_OK(
        engine->tables().Open({"user", kDim, {InitializerKind::kZeros, 0, 0}, 99}, kSharded, 0));
    EXPECT_OK(engine->tables().Get("user").Take()->writer->SetOptimizer(
        OptimizerOf(OptimizerKind::kSgd)));
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
    const auto user = engines_[host]->tables().Get("user").Take();
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

TEST_F(ShardedTest, WhatWasDecidedHoldsThoughOneOwnerIsLostMeanwhile) {
  Open(3, kChoices, Relay(0, 1, [](FrameKind kind) { return kind != FrameKind::kCommit; }));
  const std::vector<int64_t> keys = Keys(60);
  // Host 2 will use its rows after the update.
  const std::vector<int32_t> last(keys.size(), 1);
  const auto asked = At(2)->passes().Plan({{"item", keys, last.data()}});
  ASSERT_OK(asked.status());
  const auto pass = At(2)->passes().rank().Announce(asked.value().requested, 2, false);
  ASSERT_OK(pass.status());
  ASSERT_OK(At(2)->passes().rank().Begin(pass.value(), 0));
  ASSERT_OK(Read(2, keys).status());
  Train(keys);
  ASSERT_OK(Wait(0));
  ASSERT_OK(Wait(2));
  EXPECT_EQ(StatusCode::kPeerDied, Wait(1).code());
  EXPECT_EQ(1u, tables_[0]->reader->version());
  EXPECT_EQ(0u, tables_[1]->reader->version());
  EXPECT_EQ(1u, tables_[2]->reader->version());
  // A pass that waits for rows of the lost owner, and a read.
  ASSERT_OK(At(2)->passes().rank().Begin(pass.value(), 1));
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

}  // namespace
}  // namespace tfhybrid::sharded_hosts
