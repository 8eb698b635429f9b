#include "core/util/phase_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tfhybrid {
namespace {

constexpr std::chrono::milliseconds kStay{2};

TEST(PhaseTimes, KeepsNothingUnlessATimelineWasStarted) {
  const int64_t before = NanosecondsIn(Phase::kPlan);
  const auto now = PhaseClock::now();
  AddTime(Phase::kPlan, now, now + kStay);
  EXPECT_EQ(NanosecondsIn(Phase::kPlan) - before, 2000000);
  EXPECT_TRUE(TimelineSpans().empty());
}

TEST(PhaseTimes, KeepsTheFirstSpansOfEveryThread) {
  StartTimeline(3);
  const auto stay = [] {
    const PhaseTimer timer(Phase::kApply);
    std::this_thread::sleep_for(kStay);
  };
  stay();
  std::thread(stay).join();
  stay();
  stay();  // one too many
  const std::vector<PhaseSpan> spans = TimelineSpans();
  ASSERT_EQ(spans.size(), 3u);
  for (const PhaseSpan& span : spans) {
    EXPECT_EQ(span.phase, static_cast<int32_t>(Phase::kApply));
    EXPECT_GE(span.end - span.begin, 2000000);
  }
  EXPECT_LE(spans[0].end, spans[1].begin);
  EXPECT_LE(spans[1].end, spans[2].begin);
  EXPECT_EQ(spans[0].thread, spans[2].thread);
  EXPECT_NE(spans[0].thread, spans[1].thread);
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  constexpr int64_t kMinute = 60000000000;
  EXPECT_LT(now - spans[2].end, kMinute);
  EXPECT_LE(spans[2].end, now + kMinute);

  StartTimeline(1);
  EXPECT_TRUE(TimelineSpans().empty());
  StartTimeline(0);
  stay();
  EXPECT_TRUE(TimelineSpans().empty());
}

}  // namespace
}  // namespace tfhybrid
