#include "core/exchange/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "core/exchange/update_inbox.h"
#include "shm/status_asserts.h"

namespace tfhybrid {
namespace {

Status Alive() { return Status::Ok(); }

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    // As Python's are that have a timeout.
    EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_));
    ours_ = std::make_unique<Connection>(sockets_[0], "rank 3 on b", [this] {
      ++looks_;
      return ended_ ? Status::Error(StatusCode::kFailedPrecondition, "The job has ended")
                    : Status::Ok();
    });
  }
  ~ConnectionTest() override { CloseTheirs(); }

  void CloseTheirs() {
    if (sockets_[1] >= 0) close(sockets_[1]);
    sockets_[1] = -1;
  }
  void TheySend(const std::vector<char>& bytes) const {
    ASSERT_EQ(static_cast<ssize_t>(bytes.size()), write(sockets_[1], bytes.data(), bytes.size()));
  }
  void TheySend(const FrameHeader& header) const {
    const auto* bytes = reinterpret_cast<const char*>(&header);
    TheySend({bytes, bytes + sizeof(header)});
  }

  int sockets_[2];
  std::unique_ptr<Connection> ours_;
  std::atomic<int> looks_{0};
  std::atomic<bool> ended_{false};
};

TEST_F(ConnectionTest, WhatIsSentComesWholeHoweverLarge) {
  std::vector<int64_t> first(1 << 20), second = {7, -1};
  std::iota(first.begin(), first.end(), 0);
  Connection theirs(dup(sockets_[1]), "rank 0 on a", Alive);
  std::thread sender([&] {
    EXPECT_OK(ours_->Send(FrameKind::kUpdate, {first, {}, second}));
    EXPECT_OK(ours_->Send(FrameKind::kCommit, {}));
  });
  const Result<Frame> frame = theirs.Receive(), empty = theirs.Receive();
  sender.join();
  ASSERT_OK(frame.status());
  EXPECT_EQ(FrameKind::kUpdate, frame.value().kind);
  ASSERT_EQ((1 << 20) + 2, frame.value().payload.size);
  EXPECT_EQ(12345, frame.value().payload.words()[12345]);
  EXPECT_EQ(-1, frame.value().payload.words()[(1 << 20) + 1]);
  ASSERT_OK(empty.status());
  EXPECT_EQ(0, empty.value().payload.size);
}

TEST_F(ConnectionTest, WhoWaitsSleeps) { EXPECT_EQ(0, fcntl(sockets_[0], F_GETFL) & O_NONBLOCK); }

TEST_F(ConnectionTest, AForkedChildKeepsNone) {
  int told[2];
  ASSERT_EQ(0, pipe(told));
  const pid_t child = fork();
  if (child == 0) {
    ours_->Shut();  // which would end that of the parent
    close(sockets_[1]);
    char byte;
    if (write(told[1], "s", 1) == 1 && read(sockets_[0], &byte, 1) == 0) pause();
    _exit(1);
  }
  char byte;
  ASSERT_EQ(1, read(told[0], &byte, 1));
  Connection theirs(dup(sockets_[1]), "rank 0 on a", Alive);
  EXPECT_OK(ours_->Send(FrameKind::kCommit, {}));
  EXPECT_OK(theirs.Receive().status());
  ours_.reset();  // the last descriptor, while the child lives
  EXPECT_EQ(StatusCode::kPeerDied, theirs.Receive().status().code());
  int status;
  EXPECT_EQ(0, waitpid(child, &status, WNOHANG));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  close(told[0]);
  close(told[1]);
}

TEST_F(ConnectionTest, ThousandsOfPiecesAreOneFrame) {
  const std::vector<int64_t> word = {5};
  const std::vector<Span<const int64_t>> pieces(3000, word);
  Connection theirs(dup(sockets_[1]), "rank 0 on a", Alive);
  std::thread sender([&] { EXPECT_OK(ours_->Send(FrameKind::kRead, pieces)); });
  const Result<Frame> frame = theirs.Receive();
  sender.join();
  ASSERT_OK(frame.status());
  EXPECT_EQ(3000, frame.value().payload.size);
  EXPECT_EQ(5, frame.value().payload.words()[2999]);
}

TEST_F(ConnectionTest, AnEndOfTheOtherProcessIsNamed) {
  TheySend(FrameHeader{kFrameMagic, 1, 100});
  CloseTheirs();
  ExpectError(ours_->Receive().status(), StatusCode::kPeerDied, {"rank 3 on b", "has ended"});
  ExpectError(ours_->Send(FrameKind::kRead, {}), StatusCode::kPeerDied, {"rank 3 on b"});
}

TEST_F(ConnectionTest, WhatIsNoFrameEndsIt) {
  for (const FrameHeader& wrong : {FrameHeader{0x47455420, 1, 0}, FrameHeader{kFrameMagic, 1, -1},
                                   FrameHeader{kFrameMagic, 1, kMaxFrameWords + 1}}) {
    TheySend(wrong);
    ExpectError(ours_->Receive().status(), StatusCode::kPeerDied, {"no frame"});
  }
}

TEST_F(ConnectionTest, WhoWaitsLooksWhetherTheJobLives) {
  std::thread ender([this] {
    while (looks_ == 0) std::this_thread::yield();
    ended_ = true;
  });
  ExpectError(ours_->Receive().status(), StatusCode::kFailedPrecondition, {"has ended"});
  ender.join();
}

TEST_F(ConnectionTest, ShuttingWakesWhoWaits) {
  std::thread shutter([this] { ours_->Shut(); });
  EXPECT_EQ(StatusCode::kPeerDied, ours_->Receive().status().code());
  shutter.join();
}

TEST(FailureWordsTest, ComeBackAsTheyWere) {
  const Status why = Status::Error(StatusCode::kDataLoss, "a file is damaged");
  const std::vector<int64_t> words = FailureWords(why);
  ExpectError(FailureFrom(words), StatusCode::kDataLoss, {"a file is damaged"});
  EXPECT_FALSE(FailureFrom({}).ok());
}

Frame UpdateFrame(int64_t update, int64_t id, int64_t word) {
  Frame frame = {FrameKind::kUpdate, WordBuffer::OfSize(3)};
  frame.payload.data[0] = update;
  frame.payload.data[1] = id;
  frame.payload.data[2] = word;
  return frame;
}

TEST(UpdateInboxTest, FramesAreTakenByNameInAnyOrder) {
  UpdateInbox inbox;
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 2, 22)));
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 1, 11)));
  std::thread other([&] { EXPECT_OK(inbox.Put(2, UpdateFrame(9, 1, 12))); });
  for (const auto& [host, id, word] :
       {std::tuple(2, 1, 12), std::tuple(1, 1, 11), std::tuple(1, 2, 22)}) {
    const auto taken = inbox.Take(FrameKind::kUpdate, {9, id}, host, Alive);
    ASSERT_OK(taken.status());
    ASSERT_EQ(1, taken.value().words.size());
    EXPECT_EQ(word, taken.value().words[0]);
  }
  other.join();
}

TEST(UpdateInboxTest, WhatAHostSentBeforeItsEndCounts) {
  UpdateInbox inbox;
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 1, 11)));
  inbox.HostIsGone(1, Status::Error(StatusCode::kPeerDied, "rank 4 is gone"));
  EXPECT_OK(inbox.Take(FrameKind::kUpdate, {9, 1}, 1, Alive).status());
  ExpectError(inbox.Take(FrameKind::kUpdate, {9, 2}, 1, Alive).status(), StatusCode::kPeerDied,
              {"rank 4 is gone"});
}

TEST(UpdateInboxTest, AHostWhoseRowsMovedIsThereWhileOneConnectionIs) {
  UpdateInbox inbox;
  const auto take = [&](int64_t id) {
    return inbox.Take(FrameKind::kUpdate, {9, id}, 1, Alive).status();
  };
  const Status gone = Status::Error(StatusCode::kPeerDied, "the old node is gone");
  inbox.HostIsThere(1);
  inbox.HostIsThere(1);  // the new one comes before the old one ends
  inbox.HostIsGone(1, gone);
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 1, 11)));
  EXPECT_OK(take(1));
  inbox.HostIsGone(1, gone);
  ExpectError(take(2), StatusCode::kPeerDied, {"the old node is gone"});
  inbox.HostIsThere(1);  // or after
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 2, 22)));
  EXPECT_OK(take(2));
}

TEST(UpdateInboxTest, WhoDoesNotFollowTheProtocolIsRefused) {
  UpdateInbox inbox;
  EXPECT_FALSE(inbox.Put(1, {FrameKind::kUpdate, WordBuffer::OfSize(1)}).ok());
  ASSERT_OK(inbox.Put(1, UpdateFrame(9, 1, 11)));
  ExpectError(inbox.Put(1, UpdateFrame(9, 1, 11)), StatusCode::kInvalidArgument, {"twice"});
  Status put;
  for (int64_t id = 2; put.ok() && id < 5000; ++id) put = inbox.Put(1, UpdateFrame(9, id, 0));
  ExpectError(put, StatusCode::kInvalidArgument, {"does not wait"});
  EXPECT_OK(inbox.Put(2, UpdateFrame(9, 1, 0)));
}

}  // namespace
}  // namespace tfhybrid
