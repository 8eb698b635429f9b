// The C interface of meetings.
#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/engine/meetings.h"

using tfhybrid::Engine, tfhybrid::WithEngine;

int tfhybrid_meeting_begin(int64_t engine, uint64_t signature, uint64_t series, uint64_t* number) {
  return WithEngine(engine,
                    [&](Engine* its) { *number = its->meetings().Begin(signature, series); });
}

int tfhybrid_meeting_end(int64_t engine, uint64_t number) {
  return WithEngine(engine, [&](Engine* its) { its->meetings().End(number); });
}

int tfhybrid_meeting_progress_get(int64_t engine, tfhybrid_meeting_progress* progress) {
  return WithEngine(engine, [&](Engine* its) {
    const tfhybrid::MeetingProgress now = its->meetings().Get();
    *progress = {now.begun,   now.ended,       now.signature,
                 now.ordinal, now.waits_begun, now.waits_ended};
  });
}

int tfhybrid_meeting_awaited(int64_t engine, char* awaited, int64_t room, int64_t* size) {
  return WithEngine(engine, [&](Engine* its) {
    tfhybrid::CopyOut(its->meetings().Awaited(), awaited, room, size);
  });
}
