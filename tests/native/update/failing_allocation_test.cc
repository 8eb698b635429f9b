// Memory that runs out, at every allocation of an update.
#include "util/failing_allocation.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "engine/engine_job.h"
#include "update/recovery_fixture.h"

namespace tfhybrid::failing_allocation_test {
namespace {

class FailingAllocationTest : public RecoveryTest {
 protected:
  // A job that goes no further than the allocation that fails leaves whole tables.
  void FailEverywhere(const TrainingPlan& plan) {
    const Models models(plan, 2);
    for (int64_t number = 1; !HasFailure(); ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number));
      const bool was_last = KilledAt(0, plan, 2, [&](TrainingJob* job) {
        FailAllocation(number);
        try {
          EXPECT_OK(job->Train(3, RunInline));
        } catch (const std::bad_alloc&) {
        }
        const bool failed = AllocationFailed();
        FailAllocation(0);
        if (!failed) std::raise(SIGKILL);
      });
      const uint64_t version = ExpectWhole(models);
      if (!was_last) continue;
      EXPECT_EQ(3u, version);
      EXPECT_GT(number, 20);
      return;
    }
  }
};

TEST_F(FailingAllocationTest, LeavesWholeTables) { FailEverywhere(SmallPlan()); }
TEST_F(FailingAllocationTest, LeavesWholeTablesThatForget) { FailEverywhere(ForgettingPlan()); }

// On the engine's threads: whoever waits is told, or the process ends in the middle of the update,
// which the next one finishes.
TEST_F(FailingAllocationTest, IsAnErrorBeforeTheUpdateHasBegun) {
  enum Outcome { kEnded, kError, kUpdated, kLast };
  auto* const outcome = static_cast<Outcome*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int outcomes[4] = {};
  for (int64_t number = 1; outcomes[kLast] == 0 && !HasFailure(); ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    std::filesystem::remove_all(Directory());
    *outcome = kEnded;
    const bool ended = KilledInChild([&] {
      std::set_terminate([] { std::raise(SIGKILL); });
      const EngineJob job(directory_.path(), "recovered");
      job.Train({1, 2});
      ASSERT_OK(job.Wait());
      job.Post({2, 3});
      FailAllocation(number, Allocating::kOnOtherThreads);
      job.Apply();
      const Status waited = job.Wait();
      *outcome = !waited.ok() ? kError : AllocationFailed() ? kUpdated : kLast;
      FailAllocation(0);
      const bool updated = *outcome != kError;
      EXPECT_EQ(updated ? StatusCode::kOk : StatusCode::kResourceExhausted, waited.code());
      // The update is the applying thread's alone; Wait() does not wait for the thread.
      bool begun = true;
      EXPECT_OK(job.engine->applying().Run([&] {
        begun = job.update->host_update->has_begun();
        return Status::Ok();
      }));
      EXPECT_FALSE(begun);
      EXPECT_EQ(updated ? 2u : 1u, job.tables[0]->reader->version());
      EXPECT_EQ((updated ? std::vector<float>{1, 2, 1} : std::vector<float>{1, 1, 0}),
                job.Firsts(0, {1, 2, 3}));
    });
    EXPECT_EQ(ended, *outcome == kEnded);
    ++outcomes[*outcome];
  }
  EXPECT_GT(outcomes[kError], 5);
  munmap(outcome, 4096);
}

}  // namespace
}  // namespace tfhybrid::failing_allocation_test
