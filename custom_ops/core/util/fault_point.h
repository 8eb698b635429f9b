// TFHYBRID_FAULT_POINT(): a point at which a test can kill the process, as kill -9 might at any
// instant.
//
// Only in builds for tests; nothing at all otherwise. A test arms the n-th point that the process
// will hit, in a child process, and looks at what the child left in shared memory.
#ifndef TFHYBRID_CORE_UTIL_FAULT_POINT_H_
#define TFHYBRID_CORE_UTIL_FAULT_POINT_H_

#include <cstdint>

namespace tfhybrid {

#ifdef TFHYBRID_FAULT_POINTS
// The process dies by SIGKILL at the `hits`-th point that it hits from now on; 0 disarms.
void ArmFaultPoint(int64_t hits);
// Points hit since ArmFaultPoint().
int64_t FaultPointsHit();
void HitFaultPoint();
#define TFHYBRID_FAULT_POINT() ::tfhybrid::HitFaultPoint()
#else
#define TFHYBRID_FAULT_POINT() static_cast<void>(0)
#endif

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_FAULT_POINT_H_
