#include "core/shm/numa.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "core/shm/mapped_file.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::numa_test {
namespace {

using Nodes = std::vector<uint64_t>;

TEST(NumaTest, NodesAreReadAsTheKernelListsThem) {
  EXPECT_EQ(Nodes({1}), ParseNodes("0"));
  EXPECT_EQ(Nodes({0b11}), ParseNodes("0-1"));
  EXPECT_EQ(Nodes({0b1110101}), ParseNodes("0,2,4-6"));
  EXPECT_EQ(Nodes({uint64_t{1} << 63, 1}), ParseNodes("63-64"));
}

TEST(NumaTest, WhatIsNoListIsNoNode) {
  for (const char* list :
       {"", "-", "a", "0-", "1-0", "-1", "0:1", "0,,1", "9999", "0-99999999999"}) {
    EXPECT_EQ(Nodes(), ParseNodes(list)) << list;
  }
}

TEST(NumaTest, KernelTakesTheNodesThatThereAre) {
  const TemporaryDirectory directory;
  auto file = MappedFile::Create(directory.File("a"), 1 << 22, "a test");
  ASSERT_OK(file);
  const int error = InterleaveOver({1}, file.value().mutable_data(), file.value().size());
  // Some containers forbid the call altogether, some kernels do not have it.
  EXPECT_TRUE(error == 0 || error == EPERM || error == ENOSYS) << error;
}

}  // namespace
}  // namespace tfhybrid::numa_test
