#include "core/exchange/resolved_messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/compute/bfloat16.h"
#include "core/placement/key_handle.h"
#include "shm/status_asserts.h"

namespace tfhybrid {
namespace {

constexpr int64_t kThisOwner = 2;
const MessageSchema kItemsAndUsers = {{"item", "user"}, {2, 1}};

// The keys of a batch of table "item" on the owner, and of table "user" the same with another last
// bit.
BatchKeys::Batch BatchOf(int64_t rank, std::vector<int64_t> keys, bool trains = true) {
  std::vector<int64_t> users;
  for (const int64_t key : keys) users.push_back(key ^ 1);
  return {"run/" + std::to_string(keys.front()),
          "digest",
          rank,
          trains,
          0,
          {{"item", std::move(keys)}, {"user", std::move(users)}}};
}

int64_t Handle(int64_t ticket, int64_t index) {
  return KeyHandle{ticket, kThisOwner, index}.Word();
}

// A host's message of key handles, which both tables have in opposite orders. The gradient of a key
// handle is (1, 10) times its factor in "item", and its factor in "user".
std::vector<int64_t> HostMessage(const std::vector<int64_t>& handles,
                                 const std::vector<float>& factors,
                                 int64_t form = kOfHost | kOfHandles) {
  const auto count = static_cast<int64_t>(handles.size());
  const std::vector<int64_t> counts = {count, count};
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(kItemsAndUsers, counts, form)));
  const MessageBuilder message(kItemsAndUsers, counts, words, form);
  message.header()->samples = 5;
  *message.room(0) = 9;
  *message.room(1) = 8;
  const auto write = [&](int64_t table, int64_t at, std::vector<float> gradient) {
    const auto dim = static_cast<int64_t>(gradient.size());
    if ((form & kBfloat16) != 0) {
      ToBfloat16(gradient.data(), dim, message.rounded(table) + at * dim);
    } else {
      std::copy(gradient.begin(), gradient.end(), message.gradients(table) + at * dim);
    }
  };
  for (int64_t i = 0; i < count; ++i) {
    const float factor = factors[static_cast<size_t>(i)];
    message.keys(0)[i] = message.keys(1)[count - 1 - i] = handles[static_cast<size_t>(i)];
    message.ranks(0)[i] = message.ranks(1)[i] = 1;
    write(0, i, {factor, 10 * factor});
    write(1, count - 1 - i, {factor});
  }
  return words;
}

// Pieces of one unit each, the last one first: no piece may need another.
void RunBackwards(int64_t total, int64_t /*cost*/,
                  const std::function<void(int64_t begin, int64_t end)>& work) {
  for (int64_t at = total - 1; at >= 0; --at) work(at, at + 1);
}

Status Resolve(const BatchKeys& held, const std::vector<int64_t>& message,
               std::vector<int64_t>* words, int64_t hosts = 1,
               const ParallelFor& parallel_for = RunInline) {
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<GradientMessage> messages,
                            ParseMessages(kItemsAndUsers, message, hosts));
  ResolvedMessages resolved;
  TFHYBRID_RETURN_IF_ERROR(resolved.Resolve(held, kItemsAndUsers, messages, parallel_for));
  words->assign(static_cast<size_t>(resolved.Words(kItemsAndUsers)), -1);
  resolved.Fill(kItemsAndUsers, messages, *words, parallel_for);
  return Status::Ok();
}

struct KeyRow {
  int64_t key;
  int64_t ranks;
  float gradient;
  bool operator==(const KeyRow& other) const {
    return key == other.key && ranks == other.ranks && gradient == other.gradient;
  }
};

std::vector<KeyRow> RowsOf(const std::vector<int64_t>& words, int64_t host = 0, int64_t hosts = 1) {
  const auto messages = ParseMessages(kItemsAndUsers, words, hosts);
  EXPECT_TRUE(messages.ok());
  const GradientMessage& message = messages.value()[static_cast<size_t>(host)];
  EXPECT_EQ(message.header.samples, 5);
  EXPECT_EQ(message.header.form, kOfHost);
  EXPECT_EQ(message.room[0], 9);
  EXPECT_EQ(message.room[1], 8);
  std::vector<KeyRow> rows;
  for (int64_t i = 0; i < message.keys[0].size(); ++i) {
    EXPECT_EQ(message.gradients[0][2 * i + 1], 10 * message.gradients[0][2 * i]);
    rows.push_back({message.keys[0][i], message.ranks[0][i], message.gradients[0][2 * i]});
  }
  EXPECT_EQ(message.keys[1].size(), message.keys[0].size());
  return rows;
}

// Of table "user": key, ranks, gradient.
std::vector<KeyRow> UsersOf(const std::vector<int64_t>& words) {
  const auto messages = ParseMessages(kItemsAndUsers, words, 1);
  const GradientMessage& message = messages.value().front();
  std::vector<KeyRow> rows;
  for (int64_t i = 0; i < message.keys[1].size(); ++i) {
    rows.push_back({message.keys[1][i], message.ranks[1][i], message.gradients[1][i]});
  }
  return rows;
}

TEST(ResolvedMessagesTest, KeysOfTwoRanksOfAHostAreCountedAndSummed) {
  BatchKeys held(kThisOwner);
  ASSERT_OK(held.Put(4, BatchOf(0, {7, INT64_MIN})));
  ASSERT_OK(held.Put(5, BatchOf(1, {8, 7})));
  std::vector<int64_t> words;
  // Out of order, as the parts of a host's merge leave them.
  ASSERT_OK(Resolve(
      held, HostMessage({Handle(5, 0), Handle(4, 1), Handle(5, 1), Handle(4, 0)}, {1, 2, 3, 4}),
      &words));
  const std::vector<KeyRow> wanted = {{INT64_MIN, 1, 2}, {7, 2, 7}, {8, 1, 1}};
  EXPECT_EQ(RowsOf(words), wanted);
  const std::vector<KeyRow> users = {{6, 2, 7}, {INT64_MIN + 1, 1, 2}, {9, 1, 1}};
  EXPECT_EQ(UsersOf(words), users);
}

TEST(ResolvedMessagesTest, SeveralBatchesOfARankCountAKeyOnce) {
  BatchKeys held(kThisOwner);
  const int64_t last = KeyHandle::kTickets - 1;  // before ticket 1
  ASSERT_OK(held.Put(last, BatchOf(3, {7})));
  ASSERT_OK(held.Put(1, BatchOf(3, {7, 9})));
  std::vector<int64_t> words;
  ASSERT_OK(Resolve(held, HostMessage({Handle(1, 0), Handle(1, 1), Handle(last, 0)}, {1, 2, 1e8f}),
                    &words));
  const std::vector<KeyRow> wanted = {{7, 1, 1e8f + 1.0f}, {9, 1, 2}};
  EXPECT_EQ(RowsOf(words), wanted);
}

TEST(ResolvedMessagesTest, BatchesOfAnUpdateHaveTheSameStaleness) {
  BatchKeys held(kThisOwner);
  BatchKeys::Batch stale = BatchOf(1, {8});
  stale.staleness = 2;
  ASSERT_OK(held.Put(4, BatchOf(0, {7})));
  ASSERT_OK(held.Put(5, std::move(stale)));
  std::vector<int64_t> words;
  EXPECT_OK(Resolve(held, HostMessage({Handle(5, 0)}, {1}), &words));
  const Status together = Resolve(held, HostMessage({Handle(4, 0), Handle(5, 0)}, {1, 2}), &words);
  EXPECT_EQ(together.code(), StatusCode::kInvalidArgument);
  std::vector<int64_t> of_two_hosts = HostMessage({Handle(4, 0)}, {1});
  const std::vector<int64_t> second = HostMessage({Handle(5, 0)}, {1});
  of_two_hosts.insert(of_two_hosts.end(), second.begin(), second.end());
  EXPECT_EQ(Resolve(held, of_two_hosts, &words, 2).code(), StatusCode::kInvalidArgument);
}

TEST(ResolvedMessagesTest, HostsAndTablesAreResolvedByThemselves) {
  BatchKeys held(kThisOwner);
  ASSERT_OK(held.Put(4, BatchOf(0, {7, INT64_MAX})));
  ASSERT_OK(held.Put(5, BatchOf(1, {8, 7})));
  std::vector<int64_t> messages = HostMessage({Handle(4, 1), Handle(4, 0)}, {1, 2});
  const std::vector<int64_t> second = HostMessage({Handle(5, 0)}, {3});
  const std::vector<int64_t> none = HostMessage({}, {});
  messages.insert(messages.end(), second.begin(), second.end());
  messages.insert(messages.end(), none.begin(), none.end());
  std::vector<int64_t> words, backwards;
  ASSERT_OK(Resolve(held, messages, &words, 3));
  EXPECT_EQ(RowsOf(words, 0, 3), (std::vector<KeyRow>{{INT64_MAX, 1, 1}, {7, 1, 2}}));
  EXPECT_EQ(RowsOf(words, 1, 3), (std::vector<KeyRow>{{8, 1, 3}}));
  EXPECT_EQ(RowsOf(words, 2, 3), (std::vector<KeyRow>{}));
  ASSERT_OK(Resolve(held, messages, &backwards, 3, RunBackwards));
  EXPECT_EQ(backwards, words);
}

TEST(ResolvedMessagesTest, GradientsThatCameAsBfloat16AreSummedAsFloats) {
  BatchKeys held(kThisOwner);
  ASSERT_OK(held.Put(4, BatchOf(0, {7})));
  ASSERT_OK(held.Put(5, BatchOf(1, {7})));
  std::vector<int64_t> words;
  ASSERT_OK(Resolve(
      held, HostMessage({Handle(4, 0), Handle(5, 0)}, {256, 1}, kOfHost | kOfHandles | kBfloat16),
      &words));
  // 257 is no bfloat16.
  EXPECT_EQ(RowsOf(words), (std::vector<KeyRow>{{7, 2, 257}}));
}

TEST(ResolvedMessagesTest, WhatCannotBeTrainedIsRefused) {
  BatchKeys held(kThisOwner);
  ASSERT_OK(held.Put(5, BatchOf(0, {8}, false)));
  std::vector<int64_t> words;
  EXPECT_EQ(Resolve(held, HostMessage({Handle(5, 0)}, {1}), &words).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(Resolve(held, HostMessage({Handle(6, 0)}, {1}), &words).code(), StatusCode::kNotFound);
  EXPECT_EQ(Resolve(held, HostMessage({8}, {1}), &words).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tfhybrid
