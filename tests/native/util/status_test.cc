#include "core/util/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace tfhybrid::status_test {
namespace {

Status Fails() { return Status::Error(StatusCode::kNotFound, "no table ", 7, " on ", "host"); }

Result<int> Half(int value) {
  if (value % 2 != 0) return Status::Error(StatusCode::kInvalidArgument, "odd: ", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  TFHYBRID_ASSIGN_OR_RETURN(const int half, Half(value));
  TFHYBRID_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CountingCalls(const Status& first, int* calls) {
  TFHYBRID_RETURN_IF_ERROR(first);
  ++*calls;
  return Status::Ok();
}

TEST(StatusTest, OkHasNoMessageAndCostsAPointer) {
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(Status().code(), StatusCode::kOk);
  EXPECT_EQ(Status().message(), "");
  EXPECT_EQ(sizeof(Status), sizeof(std::shared_ptr<int>));
}

TEST(StatusTest, ErrorStreamsItsParts) {
  const Status status = Fails();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no table 7 on host");
}

TEST(StatusTest, CopiesOutliveTheOriginal) {
  Status copy;
  {
    const Status original = Fails();
    copy = original;
  }
  EXPECT_EQ(copy.message(), "no table 7 on host");
}

TEST(StatusTest, ReturnIfErrorStopsAtTheFirstError) {
  int calls = 0;
  EXPECT_TRUE(CountingCalls(Status::Ok(), &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(CountingCalls(Fails(), &calls).code(), StatusCode::kNotFound);
  EXPECT_EQ(calls, 1);
}

TEST(ResultTest, HoldsAValueOrAStatus) {
  EXPECT_EQ(Half(8).value(), 4);
  EXPECT_TRUE(Half(8).status().ok());
  EXPECT_FALSE(Half(7).ok());
  EXPECT_EQ(Half(7).status().message(), "odd: 7");
}

TEST(ResultTest, AssignOrReturnPassesErrorsOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd: 3");
}

TEST(ResultTest, TakeMovesTheValueOut) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> value = result.Take();
  EXPECT_EQ(*value, 5);
  EXPECT_EQ(result.value(), nullptr);
}

}  // namespace
}  // namespace tfhybrid::status_test
