#include "core/shm/huge_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace tfhybrid::huge_buffer_test {
namespace {

TEST(HugeBufferTest, AllOfItIsThereAlignedAndZero) {
  for (const int64_t bytes :
       {int64_t{1}, int64_t{4096}, (int64_t{2} << 20) + 1, int64_t{9} << 20}) {
    const HugeBuffer buffer(bytes);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20));
    EXPECT_EQ(0, buffer.data()[0]);
    EXPECT_EQ(0, buffer.data()[bytes - 1]);
    std::memset(buffer.data(), 1, static_cast<size_t>(bytes));
    EXPECT_EQ(1, buffer.data()[bytes - 1]);
  }
}

TEST(HugeBufferTest, MoreThanThereIsThrows) {
  EXPECT_THROW(HugeBuffer(int64_t{1} << 60), std::bad_alloc);
}

}  // namespace
}  // namespace tfhybrid::huge_buffer_test
