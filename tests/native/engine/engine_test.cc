#include "core/engine/engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/engine/engine_registry.h"
#include "engine/engine_job.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::engine_test {
namespace {

// What a thread of an engine says, for which a test waits.
class Told {
 public:
  void Tell(const Status& status) {
    const std::lock_guard<std::mutex> guard(mutex_);
    status_ = status;
    told_.notify_one();
  }
  Status Get() {
    std::unique_lock<std::mutex> lock(mutex_);
    told_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<Status> status_;
};

class EngineTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(EngineTest, TwoOfAProcessTrainEachItsOwn) {
  const EngineJob first(directory_.path(), "first"), second(directory_.path(), "second");
  for (int step = 0; step < 50; ++step) {
    first.Train({1, kMaxKey}, 0.5f);
    second.Train({1, kMinKey}, -2.0f);
    ASSERT_OK(first.Wait());
    ASSERT_OK(second.Wait());
  }
  EXPECT_EQ(50u, first.tables[0]->reader->version());
  EXPECT_EQ((std::vector<float>{-25, -25, 0}), first.Firsts(0, {1, kMaxKey, kMinKey}));
  EXPECT_EQ((std::vector<float>{100, 0, 100}), second.Firsts(0, {1, kMaxKey, kMinKey}));
}

TEST_F(EngineTest, EmbeddingNodesHaveNoDenseGradients) {
  Topology topology;
  topology.nodes = 2;
  std::vector<std::string> reclaimed;
  const auto engine =
      Engine::Open({directory_.path(), "job", 0, "rank 0", kToken}, topology, &reclaimed).Take();
  float samples = 2.0f, gradient = 3.0f;
  Told told;
  ASSERT_TRUE(engine->OnSumming([&](const Result<HostSum*>& host_sum) {
    constexpr auto kFloat = DenseTensor::Type::kFloat;
    told.Tell(host_sum.ok() ? host_sum.value()->Sum(1, {{kFloat, 1, &samples, &samples},
                                                        {kFloat, 1, &gradient, &gradient}})
                            : host_sum.status());
  }));
  ASSERT_OK(told.Get());
  EXPECT_EQ(3.0f, gradient);
}

TEST_F(EngineTest, ANewOptimizerCountsItsOwnSteps) {
  EngineJob job(directory_.path(), "job");
  for (int step = 0; step < 3; ++step) {
    job.Train({1}, 0.0f);
    ASSERT_OK(job.Wait());
  }
  ASSERT_OK(job.engine->ForgetOptimizer(job.tables[0].get()));
  ExpectError(job.engine->Update(0).status(), StatusCode::kFailedPrecondition, {"Table 'item'"});
  ASSERT_OK(job.tables[0]->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdam)));
  job.update =
      job.engine->Update(job.engine->OpenUpdate("adam", {"item"}, EngineJob::kChoices).Take())
          .Take();
  job.Train({1}, -1.0f);
  ASSERT_OK(job.Wait());
  // Corrected for one step, a step of Adam is as long as its rate.
  EXPECT_NEAR(1.0f, job.Firsts(0, {1})[0], 1e-3f);
}

TEST_F(EngineTest, WhoeverWaitsIsToldWhenTheUpdateIsThere) {
  const EngineJob job(directory_.path(), "job");
  Told told;
  EXPECT_EQ(0u, job.engine->meetings().Get().waits_begun);
  job.engine->WhenReached({{job.tables[0], 1}}, [&](const Status& waited) { told.Tell(waited); });
  while (job.engine->meetings().Get().waits_begun == 0) std::this_thread::yield();
  EXPECT_EQ(0u, job.engine->meetings().Get().waits_ended);
  job.Train({7});
  EXPECT_OK(told.Get());
  EXPECT_EQ(1u, job.engine->meetings().Get().waits_ended);
  EXPECT_TRUE(Engine::HaveReached({{job.tables[0], 1}}));
  EXPECT_FALSE(Engine::HaveReached({{job.tables[0], 1}, {job.tables[0], 2}}));
}

TEST_F(EngineTest, ClosingFailsThoseWhoWait) {
  const EngineJob job(directory_.path(), "job");
  Told told;
  job.engine->WhenReached({{job.tables[0], 1}}, [&](const Status& waited) { told.Tell(waited); });
  // Nor does it wait for a message that no rank will post.
  job.Apply();
  job.engine->Close();
  ExpectError(told.Get(), StatusCode::kFailedPrecondition, {"has ended"});
  EXPECT_FALSE(job.engine->applying().Submit([] {}).ok());
  Told late;
  job.engine->WhenReached({{job.tables[0], 1}}, [&](const Status& waited) { late.Tell(waited); });
  ExpectError(late.Get(), StatusCode::kFailedPrecondition, {"has ended"});
}

TEST_F(EngineTest, AnUpdateIsOpenedOnceWithOneSetOfSettings) {
  const EngineJob job(directory_.path(), "job");
  UpdateChoices choices = EngineJob::kChoices;
  EXPECT_EQ(0, job.engine->OpenUpdate("sgd", {"item"}, choices).Take());
  EXPECT_EQ(1, job.engine->OpenUpdate("other", {"item"}, choices).Take());
  EXPECT_EQ(job.update, job.engine->Update(0).Take());
  EXPECT_NE(job.update, job.engine->Update(1).Take());
  ExpectError(job.engine->Update(2).status(), StatusCode::kNotFound, {"2 updates", "number 2"});
  ExpectError(job.engine->OpenUpdate("sgd", {"items"}, choices).status(), StatusCode::kNotFound,
              {"'items'"});
  choices.reduction = "mean";
  ExpectError(job.engine->OpenUpdate("sgd", {"item"}, choices).status(),
              StatusCode::kInvalidArgument, {"'sgd'", "other settings"});
  ASSERT_OK(job.engine->store().OpenNamed({"user", 1, {InitializerKind::kZeros, 0, 0}, 99}, 0));
  EXPECT_EQ(2, job.engine->OpenUpdate("sgd", {"user"}, choices).Take()) << "of other tables";
}

TEST_F(EngineTest, ANumberHoldsOneEngineAfterAnother) {
  const int64_t number = ReserveEngine({}).Take();
  ExpectError(EngineOf(number).status(), StatusCode::kFailedPrecondition, {"init()"});
  for (const char* name : {"first", "second"}) {
    const EngineJob job(directory_.path(), name);
    const auto open = [&](const Topology&) { return Result<std::shared_ptr<Engine>>(job.engine); };
    ASSERT_OK(OpenEngine(number, open));
    EXPECT_EQ(job.engine, EngineOf(number).Take());
    ExpectError(OpenEngine(number, open), StatusCode::kFailedPrecondition, {"open already"});
    CloseEngine(number);
    ExpectError(EngineOf(number).status(), StatusCode::kFailedPrecondition, {"has ended"});
  }
  const auto fail = [](const Topology&) -> Result<std::shared_ptr<Engine>> {
    return Status::Error(StatusCode::kNotFound, "no store");
  };
  ExpectError(OpenEngine(number, fail), StatusCode::kNotFound, {"no store"});
  ExpectError(OpenEngine(number, fail), StatusCode::kNotFound, {"no store"});
  ExpectError(OpenEngine(number + 1, fail), StatusCode::kFailedPrecondition, {"No engine"});
  EXPECT_EQ(number + 1, ReserveEngine({}).Take()) << "it is not given again";
}

TEST_F(EngineTest, AForkedChildIsRefusedAndTakesNothingWithIt) {
  const EngineJob job(directory_.path(), "job");
  const int64_t number = ReserveEngine({}).Take();
  ASSERT_OK(OpenEngine(
      number, [&](const Topology&) -> Result<std::shared_ptr<Engine>> { return job.engine; }));
  job.Train({1});
  ASSERT_OK(job.Wait());
  RunInChild([number] {
    ExpectError(EngineOf(number).status(), StatusCode::kFailedPrecondition, {"forked child"});
    CloseEngine(number);
    ExpectError(EngineOf(number).status(), StatusCode::kFailedPrecondition, {"init()"});
  });
  EXPECT_EQ(job.engine, EngineOf(number).Take());
  job.Train({1});
  EXPECT_OK(job.Wait());
  CloseEngine(number);
  EXPECT_FALSE(job.engine->applying().Submit([] {}).ok()) << "it is closed";
}

}  // namespace
}  // namespace tfhybrid::engine_test
