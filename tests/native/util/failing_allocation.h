// An allocation that fails: `operator new` of the whole test program throws when it is told to.
#ifndef TFHYBRID_TESTS_NATIVE_UTIL_FAILING_ALLOCATION_H_
#define TFHYBRID_TESTS_NATIVE_UTIL_FAILING_ALLOCATION_H_

#include <cstdint>

namespace tfhybrid {

enum class Allocating { kEverywhere, kOnOtherThreads };

// The `number`-th allocation from now on throws std::bad_alloc: of all, or of those on other
// threads than this one. 0 disarms.
void FailAllocation(int64_t number, Allocating where = Allocating::kEverywhere);

// Whether it has.
bool AllocationFailed();

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_UTIL_FAILING_ALLOCATION_H_
