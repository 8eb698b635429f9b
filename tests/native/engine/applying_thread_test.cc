#include "core/engine/applying_thread.h"

#include <vector>

#include "engine/engine_job.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::applying_thread_test {
namespace {

class ApplyingThreadTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const EngineJob job_{directory_.path(), "job"};
  ApplyingThread& thread_ = job_.engine->applying();
};

TEST_F(ApplyingThreadTest, AFailedUpdateReachesThoseWhoWaitForIt) {
  job_.tables[0]->CountPost();
  thread_.Apply(job_.update, job_.Numbers(),
                [] { return Status::Error(StatusCode::kDataLoss, "nothing to apply"); });
  ExpectError(job_.Wait(), StatusCode::kDataLoss, {"'item'", "nothing to apply"});
  EXPECT_OK(job_.engine->WaitUntilDone(*job_.tables[0], 0));
}

TEST_F(ApplyingThreadTest, WhoeverIsToldThatAnUpdateWillNotComeWaitsNoLonger) {
  job_.tables[0]->CountPost();
  thread_.Fail(job_.update, Status::Error(StatusCode::kPeerDied, "host 1 is gone"));
  ExpectError(job_.Wait(), StatusCode::kPeerDied, {"'item'", "host 1 is gone"});
  EXPECT_EQ(0u, job_.tables[0]->reader->version());
}

TEST_F(ApplyingThreadTest, WorkIsDoneInItsOrderAndSaysHowItEnded) {
  std::vector<int> done;
  ASSERT_OK(thread_.Submit([&] { done.push_back(1); }));
  ExpectError(thread_.Run([&] {
    done.push_back(2);
    return Status::Error(StatusCode::kDataLoss, "the second");
  }),
              StatusCode::kDataLoss, {"the second"});
  EXPECT_EQ((std::vector<int>{1, 2}), done);
}

TEST_F(ApplyingThreadTest, AfterTheJobItRefusesWork) {
  job_.engine->Close();
  ExpectError(thread_.Submit([] {}), StatusCode::kFailedPrecondition, {"has ended"});
  ExpectError(thread_.Run(Status::Ok), StatusCode::kFailedPrecondition, {"has ended"});
}

TEST_F(ApplyingThreadTest, OnlyLeadersOfSeveralHostsExchange) {
  ExpectError(job_.update->CheckExchanges(), StatusCode::kFailedPrecondition,
              {"The leader of a host exchanges"});
}

}  // namespace
}  // namespace tfhybrid::applying_thread_test
