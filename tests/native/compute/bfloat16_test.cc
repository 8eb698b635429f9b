#include "core/compute/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tfhybrid::bfloat16_test {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float Rounded(float value) {
  uint16_t narrow;
  float wide;
  ToBfloat16(&value, 1, &narrow);
  FromBfloat16(&narrow, 1, &wide);
  return wide;
}

TEST(Bfloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(1.0f, Rounded(1.0f));
  EXPECT_EQ(FromBits(0x3f800000), Rounded(FromBits(0x3f808000)));  // a tie, down to even
  EXPECT_EQ(FromBits(0x3f820000), Rounded(FromBits(0x3f818000)));  // a tie, up to even
  EXPECT_EQ(FromBits(0x3f810000), Rounded(FromBits(0x3f808001)));
  EXPECT_EQ(FromBits(0x3f810000), Rounded(FromBits(0x3f817fff)));
}

TEST(Bfloat16Test, KeepsWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(infinity, Rounded(infinity));
  EXPECT_EQ(-infinity, Rounded(-infinity));
  EXPECT_EQ(infinity, Rounded(std::numeric_limits<float>::max()));
  EXPECT_TRUE(std::signbit(Rounded(-0.0f)));
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(Rounded(FromBits(bits)))) << bits;
  }
}

TEST(Bfloat16Test, AnyLengthAndValueIsWithinHalfAStep) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (int64_t count = 0; count < 70; ++count) {
    std::vector<float> values, wide(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values.push_back(normal(random));
    std::vector<uint16_t> narrow(values.size());
    ToBfloat16(values.data(), count, narrow.data());
    FromBfloat16(narrow.data(), count, wide.data());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(std::abs(wide[i] - values[i]), std::abs(values[i]) / 256);
      EXPECT_EQ(Rounded(values[i]), wide[i]);  // alone as among others
    }
  }
}

}  // namespace
}  // namespace tfhybrid::bfloat16_test
