#include "core/update/gradient_packer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shm/status_asserts.h"

namespace tfhybrid::gradient_packer_test {
namespace {

// Each table on a thread of its own.
void OnThreads(int64_t total, int64_t /*cost*/,
               const std::function<void(int64_t begin, int64_t end)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < total; ++i) threads.emplace_back([&work, i] { work(i, i + 1); });
  for (std::thread& thread : threads) thread.join();
}

class GradientPackerTest : public testing::Test {
 protected:
  // A message of random gradients, the i-th table with counts[i] keys, equal ones counted.
  void Fill(const std::vector<int64_t>& counts, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> gradient(-1.0f, 1.0f);
    keys_.assign(counts.size(), {});
    gradients_.assign(counts.size(), {});
    schema_ = {};
    for (size_t t = 0; t < counts.size(); ++t) {
      schema_.tables.push_back("table" + std::to_string(t));
      schema_.dims.push_back(static_cast<int64_t>(1 + 2 * t));
      for (int64_t i = 0; i < counts[t]; ++i) {
        keys_[t].push_back(static_cast<int64_t>(random() % 20) - 10);
        for (int64_t c = 0; c < schema_.dims[t]; ++c) gradients_[t].push_back(gradient(random));
      }
    }
  }

  std::vector<KeyGradients> Tables() const {
    std::vector<KeyGradients> tables;
    for (size_t t = 0; t < keys_.size(); ++t) {
      tables.push_back({keys_[t], gradients_[t].data(), RowLayout::Array(schema_.dims[t]),
                        distinct_.count(t) > 0});
    }
    return tables;
  }

  // Each table's gradients as its only batch.
  static std::vector<std::vector<KeyGradients>> Each(const std::vector<KeyGradients>& tables) {
    std::vector<std::vector<KeyGradients>> batches;
    for (const KeyGradients& table : tables) batches.push_back({table});
    return batches;
  }

  std::vector<int64_t> Pack(GradientPacker* packer, const ParallelFor& parallel_for) const {
    const std::vector<int64_t>& counts = packer->Number(Each(Tables()), parallel_for);
    std::vector<int64_t> words(static_cast<size_t>(MessageWords(schema_, counts)), -1);
    packer->Fill(schema_, MessageBuilder(schema_, counts, words), 1.0f, parallel_for);
    return words;
  }

  void ExpectPacked(const std::vector<int64_t>& words) const {
    const auto parsed = ParseMessages(schema_, words, 1);
    ASSERT_OK(parsed);
    const GradientMessage& message = parsed.value().front();
    for (size_t t = 0; t < keys_.size(); ++t) {
      const std::vector<KeyGradients> part = {Tables()[t]};
      GradientSum sum;
      sum.Number(part);
      std::vector<float> sums(static_cast<size_t>(sum.keys().size() * schema_.dims[t]));
      sum.Sum(part, schema_.dims[t], sums.data());
      EXPECT_EQ(std::vector<int64_t>(sum.keys().begin(), sum.keys().end()),
                std::vector<int64_t>(message.keys[t].begin(), message.keys[t].end()));
      EXPECT_EQ(sums, std::vector<float>(message.gradients[t], message.gradients[t] + sums.size()));
    }
  }

  MessageSchema schema_;
  std::vector<std::vector<int64_t>> keys_;
  std::vector<std::vector<float>> gradients_;
  std::set<size_t> distinct_;  // tables that are said to be
};

TEST_F(GradientPackerTest, EveryTableIsSummedIntoOneMessage) {
  GradientPacker packer;
  Fill({50, 0, 7, 1}, 1);
  ExpectPacked(Pack(&packer, RunInline));
}

TEST_F(GradientPackerTest, ThreadsChangeNothing) {
  GradientPacker packer, other;
  Fill({500, 300, 0, 1000, 2}, 2);
  EXPECT_EQ(Pack(&packer, RunInline), Pack(&other, OnThreads));
}

TEST_F(GradientPackerTest, DistinctKeysGoOverAsTheyAre) {
  GradientPacker packer, other;
  Fill({50, 20, 0, 30}, 3);
  for (const size_t t : {size_t{1}, size_t{2}}) {
    for (size_t i = 0; i < keys_[t].size(); ++i) keys_[t][i] = static_cast<int64_t>(i * i) - 100;
  }
  const std::vector<int64_t> summed = Pack(&other, RunInline);
  ExpectPacked(summed);
  distinct_ = {1, 2};
  EXPECT_EQ(summed, Pack(&packer, RunInline));
  EXPECT_EQ(summed, Pack(&packer, OnThreads));
}

TEST_F(GradientPackerTest, ScratchIsReusedForOtherSteps) {
  GradientPacker packer;
  uint64_t seed = 0;
  for (const std::vector<int64_t>& counts :
       std::vector<std::vector<int64_t>>{{900, 3}, {1, 2}, {5, 5, 5, 5}, {0}, {40, 1000}}) {
    Fill(counts, ++seed);
    ExpectPacked(Pack(&packer, RunInline));
  }
}

TEST_F(GradientPackerTest, NothingToSayIsAMessage) {
  GradientPacker packer;
  Fill({0, 0}, 1);
  const std::vector<int64_t> none = {0, 0};
  EXPECT_EQ(MessageWords(schema_, none), static_cast<int64_t>(Pack(&packer, RunInline).size()));
}

}  // namespace
}  // namespace tfhybrid::gradient_packer_test
