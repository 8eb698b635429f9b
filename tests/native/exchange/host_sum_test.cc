#include "core/exchange/host_sum.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::host_sum_test {
namespace {

constexpr uint64_t kToken = 7;
constexpr uint64_t kSignature = 99;

// What a rank brings to a sum, and gets of it.
struct Step {
  std::vector<float> told;
  std::vector<std::vector<float>> floats;
  std::vector<double> doubles;

  DenseTensors Tensors() {
    DenseTensors tensors = {Of(&told)};
    for (std::vector<float>& its : floats) tensors.push_back(Of(&its));
    tensors.push_back({DenseTensor::Type::kDouble, static_cast<int64_t>(doubles.size()),
                       doubles.data(), doubles.data()});
    return tensors;
  }
  static DenseTensor Of(std::vector<float>* its) {
    return {DenseTensor::Type::kFloat, static_cast<int64_t>(its->size()), its->data(), its->data()};
  }
};

Step RandomStep(uint64_t seed, const std::vector<int64_t>& sizes) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Step step;
  step.told = {static_cast<float>(random() % 9), 1.0f, 0.0f};
  for (const int64_t size : sizes) {
    step.floats.emplace_back();
    for (int64_t i = 0; i < size; ++i) step.floats.back().push_back(normal(random));
  }
  for (int i = 0; i < 5; ++i) step.doubles.push_back(normal(random));
  return step;
}

// In the order of ranks, as written down in the header.
template <typename T>
void AddWeighed(const std::vector<T>& its, float weight, bool first, std::vector<T>* sums) {
  if (first) sums->assign(its.size(), T{0});
  for (size_t i = 0; i < its.size(); ++i) {
    const T weighed = its[i] * static_cast<T>(weight);
    (*sums)[i] = first ? weighed : (*sums)[i] + weighed;
  }
}

Step Averages(const std::vector<Step>& ranks, bool divides) {
  Step all;
  all.floats.resize(ranks.front().floats.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const float weight = ranks[rank].told[0];
    AddWeighed(ranks[rank].told, 1.0f, rank == 0, &all.told);
    for (size_t t = 0; t < all.floats.size(); ++t) {
      AddWeighed(ranks[rank].floats[t], weight, rank == 0, &all.floats[t]);
    }
    AddWeighed(ranks[rank].doubles, weight, rank == 0, &all.doubles);
  }
  const float divisor = divides ? std::max(all.told[0], 1.0f) : 1.0f;
  for (std::vector<float>& its : all.floats) {
    for (float& value : its) value /= divisor;
  }
  for (double& value : all.doubles) value /= static_cast<double>(divisor);
  return all;
}

void ExpectEqual(const Step& got, const Step& wanted) {
  EXPECT_EQ(got.told, wanted.told);
  EXPECT_EQ(got.floats, wanted.floats);
  EXPECT_EQ(got.doubles, wanted.doubles);
}

// Ranks of a host, as threads.
class Ranks {
 public:
  explicit Ranks(int64_t count, bool other_hosts = false) : count_(count), alive_(count) {
    for (std::atomic<bool>& its : alive_) its = true;
    for (int64_t rank = 0; rank < count; ++rank) {
      sums_.push_back(HostSum::Open(directory_.path() + "/dense", kToken,
                                    {rank, count, other_hosts},
                                    [this](int64_t other) { return CheckAlive(other); })
                          .Take());
    }
  }

  HostSum& operator[](int64_t rank) { return *sums_[static_cast<size_t>(rank)]; }
  std::string PathOf(const std::string& box) const {
    return directory_.path() + "/dense." + box + ".mail";
  }
  void Kill(int64_t rank) { alive_[static_cast<size_t>(rank)] = false; }

  // Calls work(rank) on a thread of its own for every rank from `first` on.
  template <typename Work>
  void Run(const Work& work, int64_t first = 0) {
    std::vector<std::thread> threads;
    for (int64_t rank = first; rank < count_; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  Status CheckAlive(int64_t rank) const {
    if (alive_[static_cast<size_t>(rank)]) return Status::Ok();
    return Status::Error(StatusCode::kPeerDied, "rank ", rank, " has died");
  }

  TemporaryDirectory directory_;
  const int64_t count_;
  std::vector<std::atomic<bool>> alive_;
  std::vector<std::unique_ptr<HostSum>> sums_;
};

TEST(HostSumTest, EveryRankGetsTheAveragesInTheOrderOfRanks) {
  const std::vector<std::vector<int64_t>> sizes = {{}, {1}, {0, 17, 5}, {5000, 1, 33}, {3}};
  for (const int64_t count : {1, 2, 3, 5, 8}) {
    Ranks ranks(count);
    for (size_t step = 0; step < sizes.size(); ++step) {
      std::vector<Step> steps;
      for (int64_t rank = 0; rank < count; ++rank) {
        steps.push_back(RandomStep(step * 100 + static_cast<uint64_t>(rank), sizes[step]));
      }
      const Step wanted = Averages(steps, true);
      ranks.Run([&](int64_t rank) {
        EXPECT_OK(ranks[rank].Sum(kSignature, steps[static_cast<size_t>(rank)].Tensors()));
      });
      for (const Step& got : steps) ExpectEqual(got, wanted);
    }
  }
}

TEST(HostSumTest, RanksThatRunAheadDoNotTouchWhatOthersRead) {
  constexpr int64_t kSteps = 300;
  Ranks ranks(4);
  std::vector<std::vector<Step>> steps(4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (uint64_t step = 0; step < kSteps; ++step) {
      steps[static_cast<size_t>(rank)].push_back(
          RandomStep(step * 10 + static_cast<uint64_t>(rank), {41}));
    }
  }
  const std::vector<std::vector<Step>> brought = steps;
  ranks.Run([&](int64_t rank) {
    for (Step& step : steps[static_cast<size_t>(rank)]) {
      ASSERT_OK(ranks[rank].Sum(kSignature, step.Tensors()));
    }
  });
  for (size_t step = 0; step < kSteps; ++step) {
    const Step wanted =
        Averages({brought[0][step], brought[1][step], brought[2][step], brought[3][step]}, true);
    for (size_t rank = 0; rank < 4; ++rank) ExpectEqual(steps[rank][step], wanted);
  }
}

TEST(HostSumTest, WithOtherHostsTheLeaderSharesWhatItGot) {
  Ranks ranks(3, true);
  for (uint64_t round = 0; round < 3; ++round) {
    std::vector<Step> steps;
    for (uint64_t rank = 0; rank < 3; ++rank) steps.push_back(RandomStep(round * 10 + rank, {700}));
    const Step host = Averages(steps, false);
    Step other = RandomStep(round + 77, {700});
    ranks.Run([&](int64_t rank) {
      Step& own = steps[static_cast<size_t>(rank)];
      ASSERT_OK(ranks[rank].Sum(kSignature, own.Tensors()));
      if (rank != 0) return;
      ExpectEqual(own, host);
      own = other;  // as if another host had given it
      ASSERT_OK(ranks[rank].Broadcast(own.Tensors()));
    });
    for (float& value : other.floats[0]) value /= std::max(other.told[0], 1.0f);
    for (double& value : other.doubles) value /= static_cast<double>(std::max(other.told[0], 1.0f));
    for (const Step& got : steps) ExpectEqual(got, other);
  }
}

TEST(HostSumTest, RanksThatDifferWaitUntilOneEnds) {
  for (const bool other_signature : {true, false}) {
    Ranks ranks(2);
    std::vector<Step> steps = {RandomStep(1, {3}), RandomStep(2, {other_signature ? 3 : 90})};
    std::atomic<int> returned = 0;
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      EXPECT_EQ(returned, 0);
      ranks.Kill(1);
    });
    ranks.Run([&](int64_t rank) {
      const uint64_t signature = kSignature + (other_signature && rank == 1 ? 1 : 0);
      const Status status = ranks[rank].Sum(signature, steps[static_cast<size_t>(rank)].Tensors());
      ++returned;
      EXPECT_EQ(status.code(), StatusCode::kPeerDied);
    });
    killer.join();
  }
}

TEST(HostSumTest, ARankThatDiesIsNamedAndEndsAllLaterSums) {
  Ranks ranks(3);
  ranks.Kill(0);
  ranks.Run(
      [&](int64_t rank) {
        for (int again = 0; again < 2; ++again) {
          Step step = RandomStep(1, {3});
          const Status status = ranks[rank].Sum(kSignature, step.Tensors());
          EXPECT_EQ(status.code(), StatusCode::kPeerDied);
          EXPECT_EQ(status.message(), "rank 0 has died");
        }
      },
      1);
}

// As where its exchange with the other hosts has failed, and its script caught the error.
TEST(HostSumTest, ALeaderThatGoesOnWithoutSharingTellsTheOthers) {
  Ranks ranks(3, true);
  ranks.Run([&](int64_t rank) {
    Step step = RandomStep(1, {3});
    Status status = ranks[rank].Sum(kSignature, step.Tensors());
    if (rank == 0) {
      ASSERT_OK(status);
      status = ranks[rank].Sum(kSignature, step.Tensors());
    }
    ExpectError(status, StatusCode::kFailedPrecondition, {"has not got the sum", "in step 1"});
  });
}

TEST(HostSumTest, ARankThatFailsAndLivesTellsTheOthers) {
  Ranks ranks(2, true);
  // Only those who do not lead open it.
  ASSERT_EQ(0, chmod(ranks.PathOf("all").c_str(), 0644));
  ranks.Run([&](int64_t rank) {
    Step step = RandomStep(1, {3});
    Status status = ranks[rank].Sum(kSignature, step.Tensors());
    while (rank == 0 && status.ok()) {
      ASSERT_OK(ranks[rank].Broadcast(step.Tensors()));
      status = ranks[rank].Sum(kSignature, step.Tensors());
    }
    ExpectError(status, StatusCode::kFailedPrecondition, {"Refusing to attach"});
  });
}

}  // namespace
}  // namespace tfhybrid::host_sum_test
