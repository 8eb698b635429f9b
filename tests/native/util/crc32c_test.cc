#include "core/util/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tfhybrid::crc32c_test {
namespace {

std::vector<unsigned char> Bytes(int count) {
  std::vector<unsigned char> bytes(count);
  for (int i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * 37 + i / 7);
  return bytes;
}

uint32_t BitwiseReference(const unsigned char* bytes, int64_t size) {
  uint32_t crc = 0xffffffffu;
  for (int64_t i = 0; i < size; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST(Crc32cTest, GoldenValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);  // RFC 3720, B.4
}

TEST(Crc32cTest, NothingLeavesTheSeed) {
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
  EXPECT_EQ(Crc32c("", 0, 0x12345678u), 0x12345678u);
}

TEST(Crc32cTest, BothPathsAgreeForAllLengthsAndAlignments) {
  const std::vector<unsigned char> bytes = Bytes(80);
  for (int offset = 0; offset < 8; ++offset) {
    for (int size = 0; size <= 64; ++size) {
      const unsigned char* data = bytes.data() + offset;
      const uint32_t expected = BitwiseReference(data, size);
      EXPECT_EQ(Crc32c(data, size), expected) << offset << ", " << size;
      EXPECT_EQ(Crc32cPortable(data, size), expected) << offset << ", " << size;
    }
  }
}

TEST(Crc32cTest, TheSeedContinuesAChecksum) {
  const std::vector<unsigned char> bytes = Bytes(1000);
  const uint32_t whole = Crc32c(bytes.data(), 1000);
  for (int split : {0, 1, 7, 8, 500, 999, 1000}) {
    const uint32_t first = Crc32c(bytes.data(), split);
    EXPECT_EQ(Crc32c(bytes.data() + split, 1000 - split, first), whole);
    EXPECT_EQ(Crc32cPortable(bytes.data() + split, 1000 - split, first), whole);
  }
}

TEST(Crc32cTest, AnyFlippedBitShows) {
  std::vector<unsigned char> bytes = Bytes(64);
  const uint32_t original = Crc32c(bytes.data(), 64);
  for (int bit = 0; bit < 64 * 8; ++bit) {
    bytes[bit / 8] ^= 1u << (bit % 8);
    EXPECT_NE(Crc32c(bytes.data(), 64), original);
    bytes[bit / 8] ^= 1u << (bit % 8);
  }
}

}  // namespace
}  // namespace tfhybrid::crc32c_test
