#include "core/util/span.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace tfhybrid::span_test {
namespace {

TEST(SpanTest, DefaultIsEmpty) {
  const Span<int> span;
  EXPECT_TRUE(span.empty());
  EXPECT_EQ(span.size(), 0);
  EXPECT_EQ(span.begin(), span.end());
}

TEST(SpanTest, WritesThroughToTheContainer) {
  std::vector<float> values = {1, 2, 3};
  const Span<float> span(values);
  span[1] = 20;
  EXPECT_EQ(values[1], 20);
  EXPECT_EQ(span.data(), values.data());
}

TEST(SpanTest, ReadsConstContainers) {
  const std::vector<int> values = {1, 2, 3};
  const Span<const int> span = values;
  EXPECT_EQ(std::accumulate(span.begin(), span.end(), 0), 6);
  const std::string text = "key";
  EXPECT_EQ(Span<const char>(text).size(), 3);
}

TEST(SpanTest, MutableConvertsToConst) {
  std::vector<int> values = {1, 2};
  Span<int> span(values);
  const Span<const int> view = span;
  EXPECT_EQ(view.data(), span.data());
}

TEST(SpanTest, ConstnessAndElementTypeAreKept) {
  static_assert(!std::is_constructible_v<Span<int>, const std::vector<int>&>);
  static_assert(!std::is_constructible_v<Span<int64_t>, std::vector<int32_t>&>);
  static_assert(!std::is_constructible_v<Span<const int>, std::vector<int>>,
                "a temporary would dangle");
}

TEST(SpanTest, SubspanIsAWindow) {
  std::vector<int> values = {0, 1, 2, 3, 4};
  const Span<int> span = Span<int>(values).subspan(1, 3);
  EXPECT_EQ(span.size(), 3);
  EXPECT_EQ(span[0], 1);
  EXPECT_EQ(span[2], 3);
  EXPECT_TRUE(span.subspan(3, 0).empty());
}

}  // namespace
}  // namespace tfhybrid::span_test
