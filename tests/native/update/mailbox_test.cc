#include "core/update/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::mailbox_test {
namespace {

constexpr uint64_t kToken = 21;

Status Alive() { return Status::Ok(); }

class MailboxTest : public testing::Test {
 protected:
  std::string Path() const { return directory_.File("update.0"); }
  Mailbox Create() const { return Mailbox::Create(Path(), kToken).Take(); }
  MailboxReader Open() const { return MailboxReader::Open(Path(), kToken).Take(); }

  static void Post(Mailbox* mailbox, const std::vector<int64_t>& words) {
    const auto room = mailbox->Write(static_cast<int64_t>(words.size()));
    ASSERT_OK(room);
    std::copy(words.begin(), words.end(), room.value().begin());
    mailbox->Post();
  }
  static std::vector<int64_t> Read(MailboxReader* reader, uint64_t posted) {
    EXPECT_OK(reader->Wait(posted, Alive));
    const auto words = reader->Words();
    EXPECT_OK(words);
    return std::vector<int64_t>(words.value().begin(), words.value().end());
  }
  static std::vector<int64_t> Counting(size_t words, int64_t first) {
    std::vector<int64_t> counting(words);
    std::iota(counting.begin(), counting.end(), first);
    return counting;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryDirectory directory_;
};

TEST_F(MailboxTest, WhatIsPostedIsRead) {
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  for (uint64_t posted = 1; posted <= 5; ++posted) {
    const std::vector<int64_t> words = Counting(posted * 10, static_cast<int64_t>(posted));
    Post(&mailbox, words);
    EXPECT_EQ(posted, mailbox.posted());
    EXPECT_EQ(words, Read(&reader, posted));
    // As often as one likes: the words lie still.
    EXPECT_EQ(words, Read(&reader, posted));
  }
}

TEST_F(MailboxTest, EmptyMessageIsAMessage) {
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  Post(&mailbox, {});
  EXPECT_TRUE(Read(&reader, 1).empty());
}

TEST_F(MailboxTest, MessageThatOutgrowsItsSegmentGetsALargerOne) {
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  uint64_t posted = 0;
  for (const size_t words : {10u, 16384u, 16385u, 20480u, 20482u, 100000u, 3u, 99999u}) {
    const std::vector<int64_t> message = Counting(words, -static_cast<int64_t>(words));
    Post(&mailbox, message);
    EXPECT_EQ(message, Read(&reader, ++posted)) << words;
    // A late reader finds the same, and one segment of words at most is left.
    MailboxReader late = Open();
    EXPECT_EQ(message, Read(&late, posted)) << words;
    EXPECT_EQ(2u, Files().size()) << words;
  }
  EXPECT_EQ("update.0.mail", Files()[0]);
}

TEST_F(MailboxTest, NoMailboxIsNotFoundAndHalfOfOneIsNone) {
  ExpectError(MailboxReader::Open(Path(), kToken).status(), StatusCode::kNotFound, {});
  Create();
  EXPECT_OK(MailboxReader::Open(Path(), kToken));
  EXPECT_EQ((std::vector<std::string>{"update.0.mail"}), Files());
  ExpectError(MailboxReader::Open(Path(), kToken + 1).status(), StatusCode::kDataLoss, {"token"});
}

TEST_F(MailboxTest, FailureIsToldInsteadOfAMessage) {
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  mailbox.PostFailure("no room");
  ExpectError(reader.Wait(1, Alive), StatusCode::kFailedPrecondition, {"no room"});
  // The next one may go well.
  Post(&mailbox, {4, 5});
  EXPECT_EQ((std::vector<int64_t>{4, 5}), Read(&reader, 2));
  mailbox.PostFailure(std::string(2 * kMaxFailure, 'x'));
  const Status status = reader.Wait(3, Alive);
  EXPECT_EQ(std::string(kMaxFailure - 1, 'x'), status.message());
}

// A long failure, and then a short one.
TEST_F(MailboxTest, FailureIsNotMixedWithAnEarlierOne) {
  Mailbox mailbox = Create();
  const MailboxReader reader = Open();
  mailbox.PostFailure("a rather long message");
  mailbox.PostFailure("short");
  EXPECT_EQ("short", reader.Wait(2, Alive).message());
}

TEST_F(MailboxTest, WaitEndsWithTheWriter) {
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  Post(&mailbox, {1});
  int asked = 0;
  const auto dead = [&] {
    ++asked;
    return Status::Error(StatusCode::kPeerDied, "rank 0");
  };
  // What was posted before is there; who is dead is asked only when a message is missing.
  EXPECT_OK(reader.Wait(1, dead));
  EXPECT_EQ(0, asked);
  ExpectError(reader.Wait(2, dead), StatusCode::kPeerDied, {"rank 0"});
  EXPECT_EQ(1, asked);
}

TEST_F(MailboxTest, AnotherProcessWrites) {
  ChildProcess writer([&] {
    Mailbox mailbox = Create();
    Post(&mailbox, {1, 2, 3});
    Post(&mailbox, Counting(40000, 7));
    // The mapping ends with the process, what it wrote does not.
  });
  MailboxReader reader = Open();
  EXPECT_EQ(Counting(40000, 7), Read(&reader, 2));
  writer.Kill();
  EXPECT_EQ(Counting(40000, 7), Read(&reader, 2));
}

TEST_F(MailboxTest, MailboxOfALaterProcessReplacesTheOld) {
  {
    Mailbox old = Create();
    Post(&old, {1});
    std::filesystem::remove(Path() + ".mail.1");
  }
  Mailbox mailbox = Create();
  MailboxReader reader = Open();
  EXPECT_EQ(0u, mailbox.posted());
  Post(&mailbox, {2});
  EXPECT_EQ((std::vector<int64_t>{2}), Read(&reader, 1));
}

TEST_F(MailboxTest, FullTmpfsIsAnErrorAndTheMailboxStaysUsable) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=400k", [&] {
    Mailbox mailbox = Create();
    MailboxReader reader = Open();
    Post(&mailbox, {1});
    ExpectError(mailbox.Write(100000).status(), StatusCode::kResourceExhausted, {"gradients"});
    Post(&mailbox, {2, 3});
    EXPECT_EQ((std::vector<int64_t>{2, 3}), Read(&reader, 2));
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

}  // namespace
}  // namespace tfhybrid::mailbox_test
