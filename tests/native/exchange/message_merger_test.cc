#include "core/exchange/message_merger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/placement/key_handle.h"
#include "shm/status_asserts.h"

namespace tfhybrid {
namespace {

const MessageSchema kTwoTables = {{"item", "user"}, {1, 1}};

// A rank's message of key handles: `count` for each of two owners by turns, which its ticket names.
// Gradients are numbers from `first` on. Table "user" has one for each owner, with -1.
std::vector<int64_t> MessageOf(int64_t ticket, int64_t count, int64_t first) {
  const std::vector<int64_t> counts = {2 * count, 2};
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(kTwoTables, counts)));
  const MessageBuilder message(kTwoTables, counts, words);
  message.header()->form |= kOfHandles;
  for (int64_t i = 0; i < 2 * count; ++i) {
    message.keys(0)[i] = KeyHandle{ticket, i % 2, i / 2}.Word();
    message.gradients(0)[i] = static_cast<float>(first + i);
  }
  for (int64_t owner = 0; owner < 2; ++owner) {
    message.keys(1)[owner] = KeyHandle{ticket, owner, 0}.Word();
    message.gradients(1)[owner] = -1;
  }
  return words;
}

TEST(MessageMergerTest, KeyHandlesGoToTheirOwnersRankByRank) {
  const int64_t count = kPartKeys + 3;  // of an owner, so that each rank has several parts
  const std::vector<std::vector<int64_t>> words = {MessageOf(4, count, 0),
                                                   MessageOf(5, 2, 1 << 20)};
  const std::vector<Span<const int64_t>> apart = {words[0], words[1]};
  const auto messages = ParseEach(kTwoTables, apart);
  ASSERT_OK(messages.status());
  MessageMerger merger;
  for (int again = 0; again < 2; ++again) {
    merger.Merge(kTwoTables, messages.value(), {0, 0},
                 {Allocation::Even("item", 2), Allocation::Even("user", 2)}, 2, RunInline);
    for (int64_t owner = 0; owner < 2; ++owner) {
      ASSERT_EQ(merger.counts(owner), (std::vector<int64_t>{count + 2, 2}));
    }
    const int64_t size = MessageWords(kTwoTables, merger.counts(0), kOfHost);
    std::vector<int64_t> sent(static_cast<size_t>(2 * size));
    std::vector<MessageBuilder> builders;
    for (int64_t owner = 0; owner < 2; ++owner) {
      builders.emplace_back(kTwoTables, merger.counts(owner),
                            Span<int64_t>(sent.data() + owner * size, size), kOfHost);
    }
    merger.Fill(kTwoTables, builders, RunInline);
    for (int64_t owner = 0; owner < 2; ++owner) {
      const MessageBuilder& message = builders[static_cast<size_t>(owner)];
      for (int64_t i = 0; i < count + 2; ++i) {
        const bool of_second = i >= count;
        const int64_t index = of_second ? i - count : i;
        ASSERT_EQ(message.keys(0)[i], (KeyHandle{of_second ? 5 : 4, owner, index}.Word())) << i;
        ASSERT_EQ(message.ranks(0)[i], 1) << i;
        ASSERT_EQ(message.gradients(0)[i],
                  static_cast<float>((of_second ? 1 << 20 : 0) + 2 * index + owner));
      }
      for (int64_t rank = 0; rank < 2; ++rank) {
        ASSERT_EQ(message.keys(1)[rank], (KeyHandle{4 + rank, owner, 0}.Word()));
        ASSERT_EQ(message.ranks(1)[rank], 1);
        ASSERT_EQ(message.gradients(1)[rank], -1);
      }
    }
  }
}

}  // namespace
}  // namespace tfhybrid
