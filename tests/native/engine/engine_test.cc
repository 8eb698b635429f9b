#include "core/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/current_engine.h"
#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

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

UpdateSettings SettingsOf(Reduction reduction) {
  UpdateSettings settings;
  settings.schema = {{"item"}, {2}};
  settings.hosts = {0};
  settings.reduction = reduction;
  settings.local_ranks = 1;
  return settings;
}

// An engine of one rank with one table, as a process without TensorFlow uses it.
class Job {
 public:
  Job(const std::string& shm_directory, const std::string& name) {
    std::vector<std::string> reclaimed;
    engine = Engine::Open({shm_directory, name, 0, "rank 0", kToken}, &reclaimed).Take();
    table = engine->store().OpenNamed(ConfigOf("item", 2), 0).Take();
    EXPECT_OK(table->writer->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    update = engine->Update("sgd", SettingsOf(Reduction::kSum)).Take();
  }

  // Posts a gradient of each key and lets it be applied.
  void Train(const std::vector<int64_t>& keys, float gradient) const {
    const std::vector<int64_t> counts = {static_cast<int64_t>(keys.size())};
    EXPECT_OK(update->Post(counts, [&](const MessageBuilder& message) {
      message.header()->samples = 1;
      std::copy(keys.begin(), keys.end(), message.keys(0));
      std::fill_n(message.gradients(0), 2 * keys.size(), gradient);
    }));
    table->CountPost();
    engine->Apply({table}, update, {{1.0f}}, [update = update] { return update->Collect(); });
  }

  Status Wait() const { return engine->WaitForVersion(*table, table->posted); }

  // What the first number of each key's row has moved by.
  std::vector<float> Moved(const std::vector<int64_t>& keys) const {
    std::vector<float> rows(2 * keys.size()), moved;
    EXPECT_OK(table->reader->Lookup(keys, rows.data()));
    const std::vector<float> initial = InitialRows(ConfigOf("item", 2), keys);
    for (size_t i = 0; i < rows.size(); i += 2) moved.push_back(initial[i] - rows[i]);
    return moved;
  }

  std::shared_ptr<Engine> engine;
  std::shared_ptr<OpenTable> table;
  std::shared_ptr<HostUpdate> update;
};

class EngineTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(EngineTest, TwoOfAProcessTrainEachItsOwn) {
  const Job first(directory_.path(), "first"), second(directory_.path(), "second");
  for (int step = 0; step < 50; ++step) {
    first.Train({1, kMaxKey}, 0.5f);
    second.Train({1, kMinKey}, 2.0f);
    ASSERT_OK(first.Wait());
    ASSERT_OK(second.Wait());
  }
  EXPECT_EQ(50u, first.table->reader->version());
  EXPECT_NEAR(25.0f, first.Moved({1})[0], 1e-4);
  EXPECT_NEAR(100.0f, second.Moved({1})[0], 1e-4);
  EXPECT_EQ(0.0f, first.Moved({kMinKey})[0]);
}

TEST_F(EngineTest, WhoeverWaitsIsToldWhenTheUpdateIsThere) {
  const Job job(directory_.path(), "job");
  Told told;
  job.engine->WhenReached({{job.table, 1}}, [&](const Status& waited) { told.Tell(waited); });
  job.Train({7}, 1.0f);
  EXPECT_OK(told.Get());
  EXPECT_TRUE(Engine::HaveReached({{job.table, 1}}));
  EXPECT_FALSE(Engine::HaveReached({{job.table, 1}, {job.table, 2}}));
}

TEST_F(EngineTest, ClosingFailsThoseWhoWait) {
  const Job job(directory_.path(), "job");
  Told told;
  job.engine->WhenReached({{job.table, 1}}, [&](const Status& waited) { told.Tell(waited); });
  // Nor does it wait for a message that no rank will post.
  job.engine->Apply({job.table}, job.update, {{1.0f}}, [&] { return job.update->Collect(); });
  job.engine->Close();
  ExpectError(told.Get(), StatusCode::kFailedPrecondition, {"has ended"});
  EXPECT_FALSE(job.engine->Submit([] {}));
  Told late;
  job.engine->WhenReached({{job.table, 1}}, [&](const Status& waited) { late.Tell(waited); });
  ExpectError(late.Get(), StatusCode::kFailedPrecondition, {"has ended"});
}

TEST_F(EngineTest, AFailedUpdateReachesThoseWhoWaitForIt) {
  const Job job(directory_.path(), "job");
  job.table->CountPost();
  job.engine->Apply({job.table}, job.update, {{1.0f}},
                    [] { return Status::Error(StatusCode::kDataLoss, "nothing to apply"); });
  ExpectError(job.Wait(), StatusCode::kDataLoss, {"'item'", "nothing to apply"});
  EXPECT_OK(job.engine->WaitUntilDone(*job.table, 0));
}

TEST_F(EngineTest, AnUpdateIsOpenedOnceWithOneSetOfSettings) {
  const Job job(directory_.path(), "job");
  EXPECT_EQ(job.update, job.engine->Update("sgd", SettingsOf(Reduction::kSum)).Take());
  EXPECT_NE(job.update, job.engine->Update("other", SettingsOf(Reduction::kSum)).Take());
  ExpectError(job.engine->Update("sgd", SettingsOf(Reduction::kMean)).status(),
              StatusCode::kInvalidArgument, {"'sgd'", "other settings"});
}

TEST_F(EngineTest, AForkedChildIsRefusedAndTakesNothingWithIt) {
  const Job job(directory_.path(), "job");
  SetCurrentEngine(job.engine);
  job.Train({1}, 1.0f);
  ASSERT_OK(job.Wait());
  RunInChild([] {
    ExpectError(CurrentEngine().status(), StatusCode::kFailedPrecondition, {"forked child"});
    SetCurrentEngine(nullptr);
    ExpectError(CurrentEngine().status(), StatusCode::kFailedPrecondition, {"init()"});
  });
  EXPECT_EQ(job.engine, CurrentEngine().Take());
  job.Train({1}, 1.0f);
  EXPECT_OK(job.Wait());
  SetCurrentEngine(nullptr);
  EXPECT_FALSE(job.engine->Submit([] {})) << "it is closed";
}

TEST_F(EngineTest, AnUnknownTableIsAnErrorThatSaysWhatIsMissing) {
  const Job job(directory_.path(), "job");
  ExpectError(job.engine->Table("items").status(), StatusCode::kNotFound, {"'items'", "init()"});
  EXPECT_EQ(job.table, job.engine->Table("item").Take());
}

}  // namespace
}  // namespace tfhybrid::engine_test
