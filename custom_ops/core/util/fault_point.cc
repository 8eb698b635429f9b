#include "core/util/fault_point.h"

#ifdef TFHYBRID_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tfhybrid {
namespace {

std::atomic<int64_t> armed{0};
std::atomic<int64_t> passed{0};

}  // namespace

void ArmFaultPoint(int64_t hits) {
  passed = 0;
  armed = hits;
}

int64_t FaultPointsPassed() { return passed; }

void PassFaultPoint() {
  const int64_t at = armed.load(std::memory_order_relaxed);
  if (passed.fetch_add(1, std::memory_order_relaxed) + 1 == at) kill(getpid(), SIGKILL);
}

}  // namespace tfhybrid

#endif  // TFHYBRID_FAULT_POINTS
