// Calls that fail as a bad or a full disk makes them: pread, pwrite and posix_fallocate of the
// whole test program, when they are told to.
#ifndef TFHYBRID_TESTS_NATIVE_TIER_FAILING_CALLS_H_
#define TFHYBRID_TESTS_NATIVE_TIER_FAILING_CALLS_H_

#include <cstdint>

namespace tfhybrid {

// The `number`-th call from now on fails with `error`; with 0 it moves no byte, as at the end of a
// file. Number 0 disarms.
void FailRead(int64_t number, int error);
void FailWrite(int64_t number, int error);
void FailReservation(int64_t number, int error);

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_TIER_FAILING_CALLS_H_
