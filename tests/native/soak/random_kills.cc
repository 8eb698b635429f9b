// Jobs that train, each killed with SIGKILL at a random moment and recovered by the next, which
// then trains on; every row of every table must be as if nobody had ever been killed.
//
//   random_kills KILLS [SEED]
//
// Prints one line; exits with 1 where a row differs, a recovery fails or a process hangs. The plan
// that it names then is a seed with which a run of 20 kills starts over.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shm/temporary_directory.h"
#include "update/training_job.h"

namespace tfhybrid {
namespace {

// Kills of one store. Then a new one starts with empty tables, which grow faster.
constexpr int kKillsOfAStore = 20;
constexpr int kThreads = 3;
constexpr int kPatienceMs = 60000;

void OnThreads(int64_t total, int64_t /*cost*/,
               const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t piece = total / 16 + 1;
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t begin; (begin = next.fetch_add(piece)) < total;) {
      work(begin, std::min(begin + piece, total));
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < kThreads; ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
}

TrainingPlan PlanOf(uint64_t seed) {
  const auto table = [](const std::string& name, int64_t dim, OptimizerKind kind, int64_t batch,
                        int64_t fresh) {
    PlannedTable planned = {
        {name, dim, {InitializerKind::kUniform, -0.05, 0.05}, 99}, {}, batch, fresh};
    planned.optimizer.kind = kind;
    return planned;
  };
  TrainingPlan plan;
  plan.seed = seed;
  // One that is updated over and over, one that grows by new keys, one that takes whole chunks.
  plan.tables = {table("hot", 1, OptimizerKind::kSgd, 200, 1),
                 table("growing", 16, OptimizerKind::kAdam, 1000, 700),
                 table("wide", 3000, OptimizerKind::kAdagrad, 6, 3)};
  plan.hosts = seed % 2 == 0 ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{0, 0, 1};
  plan.exchange = seed % 2 == 0 ? Exchange::kLeaders : Exchange::kAllRanks;
  return plan;
}

// What a process found, before it trains on.
struct Report {
  uint64_t version;
  uint64_t version_before;  // the lowest of the tables, before it recovered
  char difference[1000];
};

void Say(const std::string& difference, Report* report) {
  std::strncpy(report->difference, difference.c_str(), sizeof(report->difference) - 1);
}

uint64_t LowestVersion(const TrainingPlan& plan, const std::string& directory) {
  uint64_t lowest = ~uint64_t{0};
  for (const PlannedTable& table : plan.tables) {
    const auto reader = TableReader::Open(TrainingDirectory(directory),
                                          TrainingStore(directory, 0).token, table.config.name);
    lowest = std::min(lowest, reader.ok() ? reader.value()->version() : 0);
  }
  return lowest;
}

// Recovers the store that the model's plan has, or makes it; null where that fails.
std::unique_ptr<TrainingJob> Recover(TrainingModel* model, const std::string& directory,
                                     Report* report) {
  const TrainingPlan& plan = model->plan();
  report->version_before = LowestVersion(plan, directory);
  auto recovered = RecoverAlone(TrainingStore(directory, 0), OnThreads);
  if (recovered.status().code() == StatusCode::kNotFound) {
    auto created = TrainingJob::Create(plan, directory);
    if (!created.ok()) Say(created.status().message(), report);
    return created.ok() ? created.Take() : nullptr;
  }
  if (!recovered.ok()) {
    Say(recovered.status().message(), report);
    return nullptr;
  }
  std::shared_ptr<Store> store = recovered.Take();
  // The last process may have died while it made them.
  const Status made = TrainingJob::MakeTables(plan, store.get());
  if (!made.ok()) Say(made.message(), report);
  if (!made.ok()) return nullptr;
  report->version = store->Find(plan.tables.front().config.name)->reader->version();
  model->AdvanceTo(report->version);
  Say(Difference(*store, *model, report->version > report->version_before), report);
  auto job = TrainingJob::GoOn(plan, directory, std::move(store));
  if (!job.ok()) Say(job.status().message(), report);
  return job.ok() ? job.Take() : nullptr;
}

// The life of a process that will be killed. Returns only where something is wrong.
void Live(TrainingModel* model, const std::string& directory, int pipe) {
  Report report = {};
  const std::unique_ptr<TrainingJob> job = Recover(model, directory, &report);
  if (write(pipe, &report, sizeof(report)) != sizeof(report) || report.difference[0] != 0) return;
  for (uint64_t version = report.version + 1;; ++version) {
    const Status trained = job->Train(version, OnThreads);
    if (trained.ok()) continue;
    std::fprintf(stderr, "update %lu: %s\n", version, trained.message().c_str());
    return;
  }
}

class Soak {
 public:
  explicit Soak(uint64_t seed) : random_(seed) {}

  // Whether all went well.
  bool KillOne(TrainingModel* model, const std::string& directory) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Live(model, directory, ends[1]);
      _exit(1);
    }
    close(ends[1]);
    // One in four dies while it recovers, the others while they train.
    const bool early = random_() % 4 == 0;
    Report report = {};
    const bool reported = !early && Receive(ends[0], &report);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (early ? 5000 : 30000)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(ends[0]);
    ++kills_;
    if (!early && !reported) Complain(model->plan().seed, "no report");
    if (report.difference[0] != 0) Complain(model->plan().seed, report.difference);
    if (WIFEXITED(status)) Complain(model->plan().seed, "it ended by itself");
    if (reported) Count(report, model);
    return !failed_;
  }

  void PrintSummary(uint64_t seed) const {
    std::printf(
        "random_kills: seed %lu, %ld kills, %ld updates found half done and finished, "
        "%lu updates in all%s\n",
        seed, kills_, finished_, updates_, failed_ ? ", FAILED" : "");
  }

 private:
  static bool Receive(int pipe, Report* report) {
    pollfd ready = {pipe, POLLIN, 0};
    return poll(&ready, 1, kPatienceMs) == 1 &&
           read(pipe, report, sizeof(*report)) == sizeof(*report);
  }
  void Complain(uint64_t plan, const char* what) {
    std::fprintf(stderr, "kill %ld, plan %lu: %s\n", kills_, plan, what);
    failed_ = true;
  }
  void Count(const Report& report, TrainingModel* model) {
    finished_ += report.version > report.version_before;
    updates_ += report.version - model->version();
    model->AdvanceTo(report.version);
  }

  std::mt19937_64 random_;
  int64_t kills_ = 0, finished_ = 0;
  uint64_t updates_ = 0;
  bool failed_ = false;
};

}  // namespace
}  // namespace tfhybrid

int main(int argc, char** argv) {
  using namespace tfhybrid;
  const int64_t kills = argc > 1 ? std::atoll(argv[1]) : 50;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 7;
  Soak soak(seed);
  bool well = true;
  for (int64_t done = 0; well && done < kills;) {
    const TemporaryDirectory directory;
    TrainingModel model(PlanOf(seed + static_cast<uint64_t>(done / kKillsOfAStore)));
    for (int i = 0; well && i < kKillsOfAStore && done < kills; ++i, ++done) {
      well = soak.KillOne(&model, directory.path());
    }
  }
  soak.PrintSummary(seed);
  return well ? 0 : 1;
}
