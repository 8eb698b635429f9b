#include "core/engine/meetings.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/c_api.h"

namespace tfhybrid {
namespace {

TEST(MeetingsTest, AMeetingHasANumberAndASignatureAndIsCounted) {
  Meetings meetings;
  EXPECT_EQ(0u, meetings.Get().begun);
  EXPECT_EQ(1u, meetings.Begin(7, 1));
  EXPECT_EQ(2u, meetings.Begin(8, 1));
  MeetingProgress now = meetings.Get();
  EXPECT_EQ(2u, now.begun);
  EXPECT_EQ(0u, now.ended);
  EXPECT_EQ(8u, now.signature);
  EXPECT_EQ(2u, now.ordinal);
  meetings.End(2);
  EXPECT_EQ(2u, meetings.Get().ended);
  EXPECT_EQ(3u, meetings.Begin(7, 2));
  EXPECT_EQ(1u, meetings.Get().ordinal);
}

TEST(MeetingsTest, TheEndOfALaterOneEndsOneThatFailed) {
  Meetings meetings;
  meetings.Begin(7, 1);
  const uint64_t second = meetings.Begin(7, 1);
  meetings.End(second);
  meetings.End(1);  // late
  const MeetingProgress now = meetings.Get();
  EXPECT_EQ(now.begun, now.ended);
}

TEST(MeetingsTest, AReaderGetsNumberAndSignatureOfTheSameMeeting) {
  Meetings meetings;
  std::thread writer([&] {
    for (uint64_t number = 1; number <= 20000; ++number) {
      meetings.End(meetings.Begin(number, 1));
    }
  });
  for (uint64_t last = 0; last < 20000;) {
    const MeetingProgress now = meetings.Get();
    ASSERT_EQ(now.begun, now.signature);
    ASSERT_GE(now.begun, last);
    ASSERT_LE(now.begun - now.ended, 1u);
    last = now.ended;
  }
  writer.join();
}

TEST(MeetingsTest, ThereAreNoneWhereNoEngineIsOpen) {
  uint64_t number = 0;
  tfhybrid_meeting_progress progress;
  EXPECT_NE(0, tfhybrid_meeting_begin(1 << 20, 7, 1, &number));
  EXPECT_NE(0, tfhybrid_meeting_end(1 << 20, 1));
  EXPECT_NE(0, tfhybrid_meeting_progress_get(1 << 20, &progress));
}

}  // namespace
}  // namespace tfhybrid
