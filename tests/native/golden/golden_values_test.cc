// Values that files, messages and exported models rest on. They can never change; what is pinned
// beside the code it belongs to is not repeated here.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/compute/initializer.h"
#include "core/update/gradient_message.h"
#include "core/util/crc32c.h"
#include "core/util/hash.h"

namespace tfhybrid::golden_values_test {
namespace {

const std::vector<int64_t> kKeys = {
    0, 1, -1, 1000003, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};

uint32_t CrcOfInitialRows(const Initializer& initializer) {
  uint32_t crc = 0;
  for (int64_t dim = 1; dim <= 67; ++dim) {
    std::vector<float> row(static_cast<size_t>(dim));
    for (const int64_t key : kKeys) {
      InitializeRow(initializer, 0x5eed, key, row);
      crc = Crc32c(row.data(), dim * static_cast<int64_t>(sizeof(float)), crc);
    }
  }
  return crc;
}

uint64_t SeedOf(uint64_t job_seed, const std::string& name) {
  return TableSeed(job_seed, name.data(), static_cast<int64_t>(name.size()));
}

TEST(GoldenValuesTest, Mix64OfAThousandNumbers) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 1000; ++i) sum = Mix64(sum ^ i) + kGoldenGamma;
  EXPECT_EQ(0xaf0c4a8d1467953bu, sum);
}

TEST(GoldenValuesTest, TableSeeds) {
  EXPECT_EQ(0x359a58b6c6956474u, SeedOf(UINT64_MAX, "user"));
  EXPECT_EQ(0xcdecc28293f3d00u, SeedOf(1, "\xc3\xa9"));  // bytes are not signed
  EXPECT_EQ(0x752f856a9b755860u, SeedOf(1, std::string(128, 'x')));
}

TEST(GoldenValuesTest, InitialRowsOfAllWidths) {
  EXPECT_EQ(0xa08ab2dfu, CrcOfInitialRows({InitializerKind::kZeros, 1, 2}));
  EXPECT_EQ(0xd4fd9cfdu, CrcOfInitialRows({InitializerKind::kConstant, -0.75, 2}));
  EXPECT_EQ(0x4d4b1f96u, CrcOfInitialRows({InitializerKind::kUniform, -0.05, 0.05}));
  EXPECT_EQ(0xd6e9e456u, CrcOfInitialRows({InitializerKind::kNormal, 0.1, 0.3}));
  EXPECT_EQ(0x976a7eeeu, CrcOfInitialRows({InitializerKind::kTruncatedNormal, 0.1, 0.3}));
}

TEST(GoldenValuesTest, Crc32cOfManyBytes) {
  std::string bytes;
  for (int i = 0; i < 10000; ++i) bytes += static_cast<char>(i * i / 3);
  EXPECT_EQ(0xe6696d1au, Crc32c(bytes.data(), 10000));
  EXPECT_EQ(0xe6696d1au, Crc32cPortable(bytes.data(), 10000));
  EXPECT_EQ(0x1846bdc7u, Crc32c(bytes.data() + 1, 9999, 0x12345678));
}

TEST(GoldenValuesTest, SignaturesOfMessages) {
  const auto signature = [](const MessageSchema& schema) {
    return static_cast<uint64_t>(schema.Signature());
  };
  EXPECT_EQ(0x0u, signature({{}, {}}));
  EXPECT_EQ(0x2bf7acb104ce521au, signature({{"item"}, {4}}));
  EXPECT_EQ(0x6b1d2e62520cbff5u, signature({{"user", "item"}, {3, 65536}}));
  EXPECT_EQ(0x6abc9eb4f845292bu, signature({{"\xc3\xa9"}, {1}}));
}

}  // namespace
}  // namespace tfhybrid::golden_values_test
