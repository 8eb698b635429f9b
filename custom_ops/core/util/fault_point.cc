#include "core/util/fault_point.h"

#ifdef TFHYBRID_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tfhybrid {
namespace {

std::atomic<int64_t> armed{0};
std::atomic<int64_t> hit{0};

}  // namespace

void ArmFaultPoint(int64_t hits) {
  hit = 0;
  armed = hits;
}

int64_t FaultPointsHit() { return hit; }

void HitFaultPoint() {
  const int64_t at = armed.load(std::memory_order_relaxed);
  if (hit.fetch_add(1, std::memory_order_relaxed) + 1 == at) kill(getpid(), SIGKILL);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_FAULT_POINTS
