#include "core/store/kept_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/util/fault_point.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/segment_files.h"

namespace tfhybrid::kept_state_test {
namespace {

constexpr uint64_t kToken = 5;
constexpr int64_t kBytes = 1000;
constexpr char kConfiguration[] = "{\"ranks\": 2}";

class KeptStateTest : public testing::Test {
 protected:
  std::string Path() const { return directory_.File("kept-0"); }
  KeptState Make() const {
    return KeptState::Create(Path(), kToken, kConfiguration, kBytes).Take();
  }
  Result<KeptState> Open() const { return KeptState::Open(Path(), kToken); }

  // A state is full of its step's number.
  static void Keep(uint64_t step, KeptState* kept) {
    const Span<uint8_t> room = kept->Write();
    std::fill(room.begin(), room.end(), static_cast<uint8_t>(step));
    kept->Publish(step, 100 + step);
  }
  // The steps of the states, the last first; none may be torn.
  static std::vector<uint64_t> StepsOf(const KeptState& kept) {
    std::vector<uint64_t> steps;
    for (const auto& state : kept.States()) {
      EXPECT_EQ(100 + state.step, state.tables);
      EXPECT_EQ(kBytes, state.content.size());
      for (const uint8_t byte : state.content) EXPECT_EQ(static_cast<uint8_t>(state.step), byte);
      steps.push_back(state.step);
    }
    return steps;
  }
  std::vector<uint64_t> Found() const {
    const auto found = Open();
    EXPECT_OK(found);
    return StepsOf(found.value());
  }

  TemporaryDirectory directory_;
};

TEST_F(KeptStateTest, NextProcessFindsTheLastTwo) {
  KeptState kept = Make();
  EXPECT_EQ(std::vector<uint64_t>{}, Found());
  Keep(1, &kept);
  EXPECT_EQ(std::vector<uint64_t>{1}, Found());
  Keep(2, &kept);
  Keep(3, &kept);
  EXPECT_EQ((std::vector<uint64_t>{3, 2}), Found());
  EXPECT_EQ(kConfiguration, Open().value().configuration());
  EXPECT_EQ(kBytes, Open().value().bytes());
}

TEST_F(KeptStateTest, EveryStateBeginsWithTheNote) {
  KeptState kept = Make();
  const std::string note = "epoch 3";
  const auto bytes = [&] {
    return Span<const uint8_t>(reinterpret_cast<const uint8_t*>(note.data()),
                               static_cast<int64_t>(note.size()));
  };
  ASSERT_OK(kept.SetNote(bytes()));
  for (uint64_t step = 1; step <= 2; ++step) {
    EXPECT_EQ(kBytes - kept.note_bytes(), kept.Write().size());
    kept.Publish(step, 0);
    const Span<const uint8_t> content = kept.States().front().content;
    EXPECT_TRUE(std::equal(note.begin(), note.end(), content.begin()));
  }
  const std::vector<uint8_t> long_note(kBytes + 1);
  ExpectError(kept.SetNote(long_note), StatusCode::kInvalidArgument, {"1001", "1000"});
}

TEST_F(KeptStateTest, SteppingBackForgetsWhatCameAfter) {
  KeptState kept = Make();
  Keep(7, &kept);
  Keep(8, &kept);
  kept.StepBackTo(kept.States().back().number);
  EXPECT_EQ(std::vector<uint64_t>{7}, Found());
  // The state that is written next must not cost the one that training is resumed from.
  kept.Write();
  EXPECT_EQ(std::vector<uint64_t>{7}, Found());
  Keep(8, &kept);
  EXPECT_EQ((std::vector<uint64_t>{8, 7}), Found());
}

TEST_F(KeptStateTest, KilledAtAnyPointTheLastIsWhole) {
  for (int64_t point = 1;; ++point) {
    SCOPED_TRACE("killed at point " + std::to_string(point));
    const bool killed = KilledInChild([&] {
      KeptState kept = Make();
      Keep(1, &kept);
      Keep(2, &kept);
      ArmFaultPoint(point);
      Keep(3, &kept);
      Keep(4, &kept);
    });
    const std::vector<uint64_t> found = Found();
    ASSERT_FALSE(found.empty());
    EXPECT_GE(found.front(), 2u);
    EXPECT_TRUE(found.size() < 2 || found[0] == found[1] + 1);
    if (!killed) break;
  }
}

TEST_F(KeptStateTest, DamagedStateIsNotFound) {
  KeptState kept = Make();
  Keep(1, &kept);
  Keep(2, &kept);
  const std::string whole = ReadFile(Path());
  int64_t noticed = 0;
  for (size_t at = sizeof(SegmentHeader); at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    WriteFile(Path(), damaged);
    const auto found = Open();
    noticed += !found.ok() || StepsOf(found.value()).size() < 2;
  }
  // All but the unused bytes.
  EXPECT_GT(noticed, 2 * kBytes / 7);
}

TEST_F(KeptStateTest, AnotherFileIsRefused) {
  Make();
  ExpectError(KeptState::Open(Path(), kToken + 1).status(), StatusCode::kDataLoss, {"token"});
  ExpectError(KeptState::Open(directory_.File("none"), kToken).status(), StatusCode::kNotFound, {});
  std::string cut = ReadFile(Path());
  const uint64_t huge = ~uint64_t{0} / 2;
  std::memcpy(&cut[offsetof(KeptSegment, slot_bytes)], &huge, sizeof(huge));
  WriteFile(Path(), cut);
  ExpectError(Open().status(), StatusCode::kDataLoss, {"damaged"});
}

}  // namespace
}  // namespace tfhybrid::kept_state_test
