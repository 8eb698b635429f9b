#include "core/passes/device_rows.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "shm/status_asserts.h"

namespace tfhybrid::device_rows_test {
namespace {

constexpr int64_t kDim = 2;

bool Always(int64_t /*key*/) { return true; }

// A table whose rows are set by the test, and a variable that holds what was copied.
class DeviceRowsTest : public testing::Test {
 protected:
  float* Row(int64_t key) {
    std::vector<float>& row = table_[key];
    if (row.empty()) row = {static_cast<float>(key), static_cast<float>(-key)};
    return row.data();
  }
  Result<DeviceRows::RequestedRows> Plan(const std::vector<int64_t>& keys,
                                         const std::function<bool(int64_t)>& is_at_hand = Always) {
    return rows_.Plan({Span<const int64_t>(keys)}, held_, is_at_hand);
  }
  std::vector<float> Read(const DeviceRows::RequestedRows& requested) {
    std::vector<float> rows;
    for (const int64_t key : requested.keys) rows.insert(rows.end(), Row(key), Row(key) + kDim);
    return rows;
  }
  // Looks keys up as an op and its variable do, checks what is found, and returns which keys were
  // copied.
  std::set<int64_t> LookUp(const std::vector<int64_t>& keys,
                           const std::function<bool(int64_t)>& is_at_hand = Always) {
    Result<DeviceRows::RequestedRows> planned = Plan(keys, is_at_hand);
    EXPECT_OK(planned.status());
    const DeviceRows::RequestedRows requested = planned.Take();
    const std::vector<float> read = Read(requested);
    Result<std::vector<int64_t>> copied = rows_.Copy(requested, read.data(), ++number_);
    EXPECT_OK(copied.status());
    std::set<int64_t> changed;
    if (requested.size > 0) variable_.assign(static_cast<size_t>(requested.size * kDim), NAN);
    for (const int64_t i : copied.value()) {
      const auto at = static_cast<size_t>(i);
      std::memcpy(&variable_.at(static_cast<size_t>(requested.at[at] * kDim)), &read[at * kDim],
                  kDim * sizeof(float));
      changed.insert(requested.keys[at]);
    }
    held_ = number_;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto at = static_cast<size_t>(requested.slots[0][i] * kDim);
      EXPECT_EQ(std::memcmp(&variable_.at(at), Row(keys[i]), kDim * sizeof(float)), 0) << keys[i];
    }
    return changed;
  }

  std::map<int64_t, std::vector<float>> table_;
  std::vector<float> variable_;
  DeviceRows rows_{kDim};
  int64_t held_ = 0, number_ = 0;
};

TEST_F(DeviceRowsTest, RowsOfAPassAreCopiedWhenItIsOpenAndThenWhatChanges) {
  rows_.Open(0, {1, 2, 3});
  EXPECT_EQ(LookUp({2, 2}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(LookUp({3, 1}), (std::set<int64_t>{}));
  Row(1)[1] = 7;
  Row(2)[0] = 7;
  EXPECT_EQ(LookUp({1, 3}), (std::set<int64_t>{1}));
  EXPECT_EQ(LookUp({2}), (std::set<int64_t>{2}));
  EXPECT_EQ(rows_.copied(), 5);
  EXPECT_EQ(rows_.bytes(), 8 * kDim * 4);
}

TEST_F(DeviceRowsTest, BitsAreComparedAndNotNumbers) {
  rows_.Open(0, {1, 2});
  Row(1)[0] = 0.0f;
  Row(2)[0] = NAN;
  EXPECT_EQ(LookUp({1, 2}), (std::set<int64_t>{1, 2}));
  Row(1)[0] = -0.0f;
  EXPECT_EQ(LookUp({1, 2}), (std::set<int64_t>{1}));
}

TEST_F(DeviceRowsTest, KeysOfTwoPassesKeepTheirSlots) {
  rows_.Open(0, {1, 2, 3, 4, 5});
  LookUp({1});
  rows_.Open(1, {4, 5, 6});
  EXPECT_EQ(LookUp({4}), (std::set<int64_t>{6}));
  rows_.Close(0);
  EXPECT_EQ(LookUp({4, 5, 6}), (std::set<int64_t>{}));
  rows_.Close(1);
  EXPECT_EQ(LookUp({4}), (std::set<int64_t>{4}));
}

TEST_F(DeviceRowsTest, KeysOfNoPassAreCopiedForEachLookup) {
  rows_.Open(0, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(LookUp({1, 100, 101}).size(), 8);
  EXPECT_EQ(LookUp({102, 6, 100}), (std::set<int64_t>{100, 102}));
  EXPECT_EQ(LookUp({1, 2, 3, 4, 5, 6}), (std::set<int64_t>{}));
  EXPECT_EQ(LookUp({100, 101, 102}).size(), 9) << "no room: the variable is made anew";
  EXPECT_EQ(rows_.bytes(), 16 * kDim * 4);
}

TEST_F(DeviceRowsTest, ASlotThatWasLentIsCopiedAgain) {
  rows_.Open(0, {1, 2, 3, 4, 5, 6, 7, 8});
  LookUp({1});
  rows_.Close(0);
  LookUp({101, 102, 103, 104, 105, 106, 107, 108});
  rows_.Open(1, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(LookUp({1, 2, 3, 4, 5, 6, 7, 8}).size(), 8);
}

TEST_F(DeviceRowsTest, WhatTheDeviceDoesNotSayThatItHasIsCopiedAgain) {
  rows_.Open(0, {1, 2, 3});
  LookUp({1});
  // A lookup that failed before anything was copied has changed nothing.
  ASSERT_OK(Plan({1, 50}).status());
  EXPECT_EQ(LookUp({1}), (std::set<int64_t>{}));
  // One that failed on the device.
  const DeviceRows::RequestedRows requested = Plan({2}).Take();
  Row(2)[0] = 9;
  ASSERT_OK(rows_.Copy(requested, Read(requested).data(), ++number_).status());
  EXPECT_EQ(LookUp({1, 2}), (std::set<int64_t>{1, 2, 3}));
}

TEST_F(DeviceRowsTest, AVariableThatWasToBeMadeStaysToBeMade) {
  rows_.Open(0, {1});
  ASSERT_OK(Plan({1}).status());
  EXPECT_EQ(LookUp({1}), (std::set<int64_t>{1}));
}

TEST_F(DeviceRowsTest, RowsOfAPassThatAreNotAtHandWaitUntilTheyAreLookedUp) {
  rows_.Open(0, {1, 2, 3});
  EXPECT_EQ(LookUp({1}, [](int64_t key) { return key != 3; }), (std::set<int64_t>{1, 2}));
  EXPECT_EQ(LookUp({3}), (std::set<int64_t>{3}));
}

TEST_F(DeviceRowsTest, SlotsThatHaveMovedMeanwhileAreRefused) {
  rows_.Open(0, {1});
  const DeviceRows::RequestedRows requested = Plan({1}).Take();
  rows_.Open(1, {2});
  LookUp({2});
  EXPECT_EQ(rows_.Copy(requested, Read(requested).data(), ++number_).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(DeviceRowsTest, ALookupOfNothingFindsNothing) {
  EXPECT_EQ(LookUp({}), (std::set<int64_t>{}));
  EXPECT_EQ(rows_.bytes(), 0);
}

}  // namespace
}  // namespace tfhybrid::device_rows_test
