// A leader killed while it makes, loads or clears tables, or gives them an optimizer.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_loader.h"
#include "update/recovery_fixture.h"

namespace tfhybrid::interrupted_table_test {
namespace {

class InterruptedTableTest : public RecoveryTest {
 protected:
  // Kills `body`, run on a job at version 2, at each of its points, and hands what is recovered to
  // `check`. Returns the number of kills.
  int64_t KillEverywhere(
      const Step& body, const std::function<void(const Result<std::unique_ptr<Store>>&)>& check,
      const Step& prepare = [](TrainingJob*) {}) {
    for (int64_t point = 1;; ++point) {
      SCOPED_TRACE("killed at point " + std::to_string(point));
      const bool killed = KilledAt(point, SmallPlan(), 2, body, prepare);
      if (!killed || HasFailure()) return point - 1;
      check(Recover());
    }
  }

  static TableWriter* WriterOf(TrainingJob* job) {
    return job->store()->Find("adam")->writer.get();
  }
  static void ExpectBeingLoaded(const Result<std::unique_ptr<Store>>& recovered) {
    ExpectError(recovered.status(), StatusCode::kDataLoss, {"'adam'", "was being loaded"});
  }
};

TEST_F(InterruptedTableTest, LoadedTableIsRefused) {
  const int64_t kills = KillEverywhere(
      [](TrainingJob* job) {
        const std::vector<int64_t> keys = KeysBetween(0, 300);
        const std::vector<float> rows(keys.size() * 16, 1.0f);
        EXPECT_OK(WriteRows(WriterOf(job), keys, rows));
      },
      ExpectBeingLoaded);
  EXPECT_GT(kills, 600);
}

TEST_F(InterruptedTableTest, ClearedTableIsRefused) {
  const int64_t kills = KillEverywhere(
      [](TrainingJob* job) { EXPECT_OK(TableLoader(WriterOf(job)).Clear()); }, ExpectBeingLoaded);
  EXPECT_GE(kills, 4);
}

TEST_F(InterruptedTableTest, LoadThatEndedIsKept) {
  EXPECT_FALSE(KilledAt(0, SmallPlan(), 2, [](TrainingJob* job) {
    EXPECT_OK(TableLoader(WriterOf(job)).Clear());
    EXPECT_OK(WriteRows(WriterOf(job), {1, 2}, std::vector<float>(32, 4.0f)));
  }));
  const auto store = Recover().Take();
  EXPECT_EQ(2, store->Find("adam")->reader->Stats().rows);
}

TEST_F(InterruptedTableTest, FailureOfTheDeadLeaderIsForgotten) {
  EXPECT_FALSE(KilledAt(0, SmallPlan(), 2, [](TrainingJob* job) {
    WriterOf(job)->PublishFailure(Status::Error(StatusCode::kResourceExhausted, "no room"));
  }));
  const auto store = Recover().Take();
  const TableReader& reader = *store->Find("adam")->reader;
  EXPECT_FALSE(reader.Reached(3));
  ExpectError(reader.WaitVersion(3, [] { return Status::Error(StatusCode::kPeerDied, "gone"); }),
              StatusCode::kPeerDied, {"gone"});
}

TEST_F(InterruptedTableTest, OptimizerIsThereOrNot) {
  const TableConfig config = ConfigOf("late", 4);
  const OptimizerConfig adagrad = OptimizerOf(OptimizerKind::kAdagrad);
  const int64_t kills = KillEverywhere(
      [&](TrainingJob* job) {
        EXPECT_OK(job->store()->Find("late")->writer->SetOptimizer(adagrad));
      },
      [&](const Result<std::unique_ptr<Store>>& recovered) {
        ASSERT_OK(recovered);
        const auto table = recovered.value()->Find("late");
        EXPECT_OK(table->writer->SetOptimizer(adagrad));
        std::vector<float> states(200 * 4);
        EXPECT_OK(table->writer->chunks().ReadState(0, 200, states.data()));
        EXPECT_EQ(std::vector<float>(states.size(), 0.1f), states);
      },
      [&](TrainingJob* job) {
        const auto table = job->store()->OpenNamed(config, 0);
        ASSERT_OK(table);
        // Three chunks.
        ASSERT_OK(WriteRows(table.value()->writer.get(), KeysBetween(0, 200),
                            std::vector<float>(200 * 4, 1.0f)));
      });
  EXPECT_GE(kills, 4);
}

TEST_F(InterruptedTableTest, OptimizerIsTheOldOneOrCanBeReplaced) {
  const OptimizerConfig adagrad = OptimizerOf(OptimizerKind::kAdagrad);
  const int64_t kills = KillEverywhere(
      [&](TrainingJob* job) {
        WriterOf(job)->ForgetOptimizer();
        EXPECT_OK(WriterOf(job)->SetOptimizer(adagrad));
      },
      [&](const Result<std::unique_ptr<Store>>& recovered) {
        ASSERT_OK(recovered);
        TableWriter* const writer = recovered.value()->Find("adam")->writer.get();
        if (writer->optimizer().kind == OptimizerKind::kAdam) {
          EXPECT_EQ(0u, writer->page().optimizer_start());
          writer->ForgetOptimizer();
        }
        EXPECT_OK(writer->SetOptimizer(adagrad));
        EXPECT_GT(writer->version(), 0u);
        EXPECT_EQ(writer->version(), writer->page().optimizer_start());
        std::vector<float> states(static_cast<size_t>(writer->rows() * writer->dim()));
        EXPECT_OK(writer->chunks().ReadState(0, writer->rows(), states.data()));
        EXPECT_EQ(std::vector<float>(states.size(), 0.1f), states);
      });
  EXPECT_GE(kills, 5);
}

TEST_F(InterruptedTableTest, TableIsThereOrCanBeMade) {
  const TableConfig config = ConfigOf("late", 4);
  const TrainingModel model = Models(SmallPlan(), 2).before;
  const int64_t kills = KillEverywhere(
      [&](TrainingJob* job) { EXPECT_OK(job->store()->OpenNamed(config, 0)); },
      [&](const Result<std::unique_ptr<Store>>& recovered) {
        ASSERT_OK(recovered);
        const auto& store = recovered.value();
        if (store->Find("late") == nullptr) {
          EXPECT_EQ("", Difference(*store, model, false));
          EXPECT_OK(store->OpenNamed(config, 0));
        }
        EXPECT_OK(WriteRows(store->Find("late")->writer.get(), {1}, std::vector<float>(4)));
      });
  EXPECT_GE(kills, 3);
}

}  // namespace
}  // namespace tfhybrid::interrupted_table_test
