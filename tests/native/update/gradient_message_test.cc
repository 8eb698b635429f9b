#include "core/update/gradient_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "shm/status_asserts.h"

namespace tfhybrid::gradient_message_test {
namespace {

const MessageSchema kSchema = {{"user", "item"}, {3, 2}};

// The gradient of column c of the i-th key counts on from `first`.
std::vector<int64_t> Message(const MessageSchema& schema,
                             const std::vector<std::vector<int64_t>>& keys, float first) {
  std::vector<int64_t> counts;
  for (const auto& table : keys) counts.push_back(static_cast<int64_t>(table.size()));
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(schema, counts)), -1);
  const MessageBuilder builder(schema, counts, words);
  for (size_t t = 0; t < keys.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    std::copy(keys[t].begin(), keys[t].end(), builder.keys(table));
    for (int64_t i = 0; i < counts[t] * schema.dims[t]; ++i) builder.gradients(table)[i] = first++;
  }
  return words;
}

Status ParseError(const std::vector<int64_t>& words, int64_t messages) {
  return ParseMessages(kSchema, words, messages).status();
}

TEST(GradientMessageTest, WhatIsPackedIsParsed) {
  std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
  const std::vector<int64_t> second = Message(kSchema, {{}, {6, INT64_MIN, INT64_MAX}}, 100);
  const std::vector<int64_t> empty = Message(kSchema, {{}, {}}, 0);
  words.insert(words.end(), second.begin(), second.end());
  words.insert(words.end(), empty.begin(), empty.end());
  const auto parsed = ParseMessages(kSchema, words, 3);
  ASSERT_OK(parsed);
  const GradientMessage& first = parsed.value()[0];
  EXPECT_EQ((std::vector<int64_t>{7, -1}),
            std::vector<int64_t>(first.keys[0].begin(), first.keys[0].end()));
  EXPECT_EQ(5, first.keys[1][0]);
  EXPECT_EQ((std::vector<float>{1, 2, 3, 4, 5, 6}),
            std::vector<float>(first.gradients[0], first.gradients[0] + 6));
  EXPECT_EQ((std::vector<float>{7, 8}),
            std::vector<float>(first.gradients[1], first.gradients[1] + 2));
  EXPECT_EQ(0, parsed.value()[1].keys[0].size());
  EXPECT_EQ(INT64_MAX, parsed.value()[1].keys[1][2]);
  EXPECT_EQ(105.0f, parsed.value()[1].gradients[1][5]);
  EXPECT_TRUE(parsed.value()[2].keys[1].empty());
}

TEST(GradientMessageTest, PaddingIsZero) {
  const MessageSchema schema = {{"user"}, {3}};
  EXPECT_EQ(0, Message(schema, {{7}}, 1).back() >> 32);
}

TEST(GradientMessageTest, CutShortAnywhereIsAnError) {
  const std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
  for (size_t length = 0; length < words.size(); ++length) {
    const std::vector<int64_t> cut(words.begin(), words.begin() + static_cast<int64_t>(length));
    ExpectError(ParseError(cut, 1), StatusCode::kInvalidArgument, {"rank 0"});
  }
  ExpectError(ParseError(words, 2), StatusCode::kInvalidArgument, {"rank 1", "cut short"});
}

TEST(GradientMessageTest, WordsTooManyAreAnError) {
  std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
  words.push_back(0);
  ExpectError(ParseError(words, 1), StatusCode::kInvalidArgument, {"followed by something else"});
  EXPECT_FALSE(ParseError(words, 2).ok());
  EXPECT_FALSE(ParseError(words, 0).ok());
}

TEST(GradientMessageTest, ImpossibleCountsAreAnError) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t count :
       {int64_t{-1}, -kMax - 1, int64_t{1}, int64_t{3}, int64_t{1000}, kMax / 3, kMax}) {
    for (const size_t table : {8, 9}) {
      std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5, 6}}, 1);
      words[table] = count;
      ExpectError(ParseError(words, 1), StatusCode::kInvalidArgument, {"rank 0"});
    }
  }
  // Of a length that fits: a table has less than no keys, the other so many more.
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{-1, 6}, {6, -1}, {-4, 16}}) {
    std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
    words.resize(static_cast<size_t>(MessageWords(kSchema, counts)));
    words[1] = static_cast<int64_t>(words.size());
    std::copy(counts.begin(), counts.end(), words.begin() + 8);
    ExpectError(ParseError(words, 1), StatusCode::kInvalidArgument, {"rank 0", "damaged"});
  }
  for (const int64_t size : {int64_t{-1}, int64_t{0}, int64_t{3}, kMax}) {
    std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
    words[1] = size;
    ExpectError(ParseError(words, 1), StatusCode::kInvalidArgument, {"wrong length"});
  }
}

TEST(GradientMessageTest, AnotherModelIsAnError) {
  const MessageSchema others[] = {{{"user", "shop"}, {3, 2}},
                                  {{"user", "item"}, {3, 4}},
                                  {{"item", "user"}, {2, 3}},
                                  {{"useri", "tem"}, {3, 2}}};
  for (const MessageSchema& other : others) {
    EXPECT_NE(kSchema.Signature(), other.Signature());
    ExpectError(ParseError(Message(other, {{7}, {5}}, 1), 1), StatusCode::kInvalidArgument,
                {"rank 0", "other tables"});
  }
  EXPECT_NE(kSchema.Signature(), (MessageSchema{{"user"}, {3}}).Signature());
}

// Of a host: with the ranks of each key, and room; in both widths.
std::vector<int64_t> HostMessage(int64_t form) {
  const std::vector<int64_t> counts = {2, 1};
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(kSchema, counts, form)), -1);
  const MessageBuilder builder(kSchema, counts, words, form);
  builder.header()->samples = 7;
  *builder.room(1) = 99;
  const int64_t keys[] = {5, -6, 8};
  for (int i = 0; i < 3; ++i) {
    const int64_t table = i / 2, at = i % 2;
    builder.keys(table)[at] = keys[i];
    builder.ranks(table)[at] = static_cast<uint16_t>(i + 1);
    for (int64_t column = 0; column < kSchema.dims[static_cast<size_t>(table)]; ++column) {
      const float value = 1.5f * static_cast<float>(i);
      const int64_t to = at * kSchema.dims[static_cast<size_t>(table)] + column;
      if ((form & kBfloat16) != 0) {
        builder.rounded(table)[to] = static_cast<uint16_t>(i == 0 ? 0 : i == 1 ? 0x3fc0 : 0x4040);
      } else {
        builder.gradients(table)[to] = value;
      }
    }
  }
  return words;
}

TEST(GradientMessageTest, HostsTellRanksAndRoom) {
  const std::vector<int64_t> rounded = HostMessage(kOfHost | kBfloat16);
  const auto narrow = ParseMessages(kSchema, rounded, 1);
  ASSERT_OK(narrow);
  EXPECT_EQ(nullptr, narrow.value()[0].gradients[0]);
  std::vector<int64_t> widened(static_cast<size_t>(WidenedWords(kSchema, narrow.value())), -1);
  Widen(kSchema, narrow.value(), widened);
  // What was exact in bfloat16 is the message that was not rounded.
  EXPECT_EQ(HostMessage(kOfHost), widened);
  EXPECT_LT(rounded.size(), widened.size());
  const auto parsed = ParseMessages(kSchema, widened, 1);
  ASSERT_OK(parsed);
  const GradientMessage& message = parsed.value()[0];
  EXPECT_EQ(7, message.header.samples);
  EXPECT_EQ((std::vector<int64_t>{0, 99}), message.room);
  EXPECT_EQ(2, message.ranks[0][1]);
  EXPECT_EQ(3, message.ranks[1][0]);
  EXPECT_EQ(3.0f, message.gradients[1][1]);
}

TEST(GradientMessageTest, FailureIsATextInPlaceOfKeys) {
  for (const int64_t form : {int64_t{0}, kOfHost, kOfHost | kBfloat16}) {
    for (const std::string& why : {std::string("no room"), std::string(800, 'x')}) {
      std::vector<int64_t> words = FailureMessage(kSchema, form, why);
      const std::vector<int64_t> next = Message(kSchema, {{7}, {}}, 1);
      words.insert(words.end(), next.begin(), next.end());
      const auto parsed = ParseMessages(kSchema, words, 2);
      ASSERT_OK(parsed);
      EXPECT_EQ(why, parsed.value()[0].failure);
      EXPECT_TRUE(parsed.value()[0].keys[0].empty());
      EXPECT_EQ("", parsed.value()[1].failure);
      EXPECT_EQ(7, parsed.value()[1].keys[0][0]);
    }
  }
}

TEST(GradientMessageTest, UnknownFormsAndTextsAreAnError) {
  for (const int64_t form : {int64_t{-1}, int64_t{8}, INT64_MAX}) {
    std::vector<int64_t> words = Message(kSchema, {{7}, {5}}, 1);
    words[2] = form;
    ExpectError(ParseError(words, 1), StatusCode::kInvalidArgument, {"form"});
  }
  for (const int64_t bytes : {int64_t{-1}, int64_t{1}, int64_t{1000}, INT64_MAX}) {
    std::vector<int64_t> words = Message(kSchema, {{7}, {5}}, 1);
    words[6] = bytes;
    EXPECT_FALSE(ParseError(words, 1).ok()) << bytes;
  }
}

// Any word changed, any length: an error or a message inside the words (the address sanitizer
// watches).
TEST(GradientMessageTest, RandomDamageNeverLeavesTheWords) {
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 20000; ++turn) {
    std::vector<int64_t> words = Message(kSchema, {{7, -1}, {5}}, 1);
    words.resize(random() % (words.size() + 3), 1);
    for (int change = 0; change < 2 && !words.empty(); ++change) {
      const uint64_t value = random();
      words[random() % words.size()] =
          static_cast<int64_t>(value % 2 == 0 ? value % 16 : value >> (value % 64));
    }
    const auto parsed = ParseMessages(kSchema, words, 1);
    if (!parsed.ok()) continue;
    for (size_t table = 0; table < 2; ++table) {
      float sum = 0;
      for (int64_t i = 0; i < parsed.value()[0].keys[table].size() * kSchema.dims[table]; ++i) {
        sum += parsed.value()[0].gradients[table][i];
      }
      EXPECT_TRUE(sum == sum || sum != sum);
    }
  }
}

}  // namespace
}  // namespace tfhybrid::gradient_message_test
