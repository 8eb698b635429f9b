#include "core/exchange/pass_frames.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tfhybrid {
namespace {

std::vector<int64_t> Whole(const AnnouncedKeys& announced) {
  std::vector<int64_t> words = AnnounceWords(announced);
  words.insert(words.end(), announced.keys.begin(), announced.keys.end());
  return words;
}

TEST(PassFramesTest, AnAnnouncementIsReadAsItWasWritten) {
  const std::vector<int64_t> keys = {7, INT64_MIN, -1};
  const std::vector<int64_t> words = Whole({"item", 3, 5, keys});
  const Result<AnnouncedKeys> read = ParseAnnounce(words);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().table, "item");
  EXPECT_EQ(read.value().dim, 3);
  EXPECT_EQ(read.value().number, 5);
  EXPECT_TRUE(std::equal(keys.begin(), keys.end(), read.value().keys.begin()));
}

TEST(PassFramesTest, AnAnnouncementWithoutNumberOrWithTooManyWordsIsRefused) {
  const std::vector<int64_t> keys = {7};
  std::vector<int64_t> words = Whole({"item", 3, 0, keys});
  EXPECT_FALSE(ParseAnnounce(words).ok());
  words = Whole({"item", 3, 1, keys});
  EXPECT_TRUE(ParseAnnounce(words).ok());
  words.push_back(1);
  EXPECT_FALSE(ParseAnnounce(words).ok());
}

TEST(PassFramesTest, FreshRowsAreReadAsTheyWereWritten) {
  for (const int64_t count : {0, 1, 8, 9}) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < count; ++i) keys.push_back(i - 3);
    const FreshFrame frame = MakeFresh({"user", 3, 17, 4, {0.5f, 0.25f}, keys, nullptr, nullptr});
    for (int64_t i = 0; i < count; ++i) frame.has_row[i] = i % 2;
    for (int64_t i = 0; i < 3 * count; ++i) frame.rows[i] = static_cast<float>(i);
    const Result<FreshRows> read = ParseFresh(frame.words.words());
    ASSERT_TRUE(read.ok()) << read.status().message();
    const FreshRows& fresh = read.value();
    EXPECT_EQ(fresh.table, "user");
    EXPECT_EQ(fresh.version, 17u);
    EXPECT_EQ(fresh.answers, 4);
    EXPECT_EQ(fresh.decays.rows, 0.5f);
    EXPECT_EQ(fresh.decays.initial, 0.25f);
    ASSERT_EQ(fresh.keys.size(), count);
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(fresh.keys[i], i - 3);
      EXPECT_EQ(fresh.has_row[i], i % 2);
      for (int64_t d = 0; d < 3; ++d)
        EXPECT_EQ(fresh.rows[3 * i + d], static_cast<float>(3 * i + d));
    }
  }
}

TEST(PassFramesTest, FreshRowsThatAreCutShortAreRefused) {
  const std::vector<int64_t> keys = {1, 2};
  const FreshFrame frame = MakeFresh({"user", 3, 17, 0, {}, keys, nullptr, nullptr});
  const Span<const int64_t> words = frame.words.words();
  for (int64_t size = 0; size < words.size(); ++size) {
    EXPECT_FALSE(ParseFresh(words.subspan(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace tfhybrid
