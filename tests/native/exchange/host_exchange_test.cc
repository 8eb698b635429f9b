#include "core/exchange/host_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/store/table_digest.h"
#include "core/update/gradient_packer.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid::host_exchange_test {
namespace {

const MessageSchema kSchema = {{"user", "item"}, {3, 2}};
const std::vector<float> kRates = {0.5f, 0.25f};

// What one rank brings: keys and gradients by table.
struct Batch {
  std::vector<std::vector<int64_t>> keys;
  std::vector<std::vector<float>> gradients;
};

Batch RandomBatch(std::mt19937_64* random, int64_t keys, int64_t range) {
  std::normal_distribution<float> normal;
  Batch batch;
  for (const int64_t dim : kSchema.dims) {
    std::set<int64_t> distinct;
    for (int64_t i = 0; i < keys; ++i) {
      distinct.insert(static_cast<int64_t>((*random)() % static_cast<uint64_t>(range)) - range / 2);
    }
    batch.keys.emplace_back(distinct.begin(), distinct.end());
    batch.gradients.emplace_back();
    for (size_t i = 0; i < distinct.size() * static_cast<size_t>(dim); ++i) {
      batch.gradients.back().push_back(normal(*random));
    }
  }
  return batch;
}

std::vector<int64_t> CountsOf(const Batch& batch) {
  std::vector<int64_t> counts;
  for (const auto& keys : batch.keys) counts.push_back(static_cast<int64_t>(keys.size()));
  return counts;
}

void Fill(const Batch& batch, const MessageBuilder& message) {
  message.header()->samples = 1;
  for (size_t t = 0; t < batch.keys.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    std::copy(batch.keys[t].begin(), batch.keys[t].end(), message.keys(table));
    std::copy(batch.gradients[t].begin(), batch.gradients[t].end(), message.gradients(table));
  }
}

// A host: its store with both tables, and an update.
class Host {
 public:
  Host(const std::string& shm_directory, const UpdateSettings& settings) {
    std::vector<std::string> reclaimed;
    stores_.push_back(
        Store::Create({shm_directory, "job", 0, "rank 0", kToken}, &reclaimed).Take());
    for (size_t t = 0; t < kSchema.tables.size(); ++t) {
      tables_.push_back(
          stores_[0]->OpenNamed(ConfigOf(kSchema.tables[t], kSchema.dims[t]), 0).Take());
      EXPECT_OK(tables_.back()->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
      writers_.push_back(tables_.back()->writer.get());
    }
    const auto ranks = static_cast<int>(std::max<int64_t>(settings.local_ranks, 1));
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank > 0) {
        stores_.push_back(
            Store::Attach({shm_directory, "job", rank, "rank " + std::to_string(rank), kToken})
                .Take());
      }
      updates_.push_back(HostUpdate::Open(stores_.back(), "update", settings).Take());
    }
    exchange_ = std::make_unique<HostExchange>(updates_[0].get());
  }

  void Post(size_t rank, const Batch& batch, bool skip = false) {
    const std::vector<int64_t> counts = CountsOf(batch);
    EXPECT_OK(updates_[rank]->Post(counts, [&](const MessageBuilder& message) {
      Fill(batch, message);
      message.header()->skip = skip;
    }));
  }
  HostUpdate* update(size_t rank = 0) const { return updates_[rank].get(); }
  HostExchange* exchange() const { return exchange_.get(); }
  const std::vector<TableWriter*>& writers() const { return writers_; }

  uint64_t Digest(size_t table) const { return TableDigest(tables_[table].get()).value(); }
  uint64_t version() const { return tables_[0]->writer->version(); }

 private:
  std::vector<std::shared_ptr<Store>> stores_;
  std::vector<std::shared_ptr<OpenTable>> tables_;
  std::vector<TableWriter*> writers_;
  std::vector<std::shared_ptr<HostUpdate>> updates_;
  std::unique_ptr<HostExchange> exchange_;
};

// Hosts with different numbers of ranks, and what Horovod does between them.
class HostExchangeTest : public testing::Test {
 protected:
  void Make(Exchange exchange, const std::vector<int64_t>& ranks, int64_t form = 0,
            Reduction reduction = Reduction::kFrequency) {
    exchange_ = exchange;
    hosts_.clear();
    folders_.clear();
    std::vector<int64_t> numbers;
    for (size_t host = 0; host < ranks.size(); ++host) {
      numbers.push_back(static_cast<int64_t>(host));
    }
    for (size_t host = 0; host < ranks.size(); ++host) {
      folders_.push_back(std::make_unique<TemporaryDirectory>());
      UpdateSettings settings = {kSchema, numbers, reduction, exchange};
      settings.local_ranks = ranks[host];
      settings.host = static_cast<int64_t>(host);
      settings.form = form;
      for (const std::string& table : kSchema.tables) {
        settings.allocations.push_back(Allocation::Even(table, static_cast<int64_t>(ranks.size())));
      }
      hosts_.push_back(std::make_unique<Host>(folders_.back()->path(), settings));
    }
  }

  // Which messages go to whom, as an all-to-all and an allgather do it.
  std::vector<int64_t> Send() {
    std::vector<std::vector<int64_t>> sent;
    std::vector<std::vector<int64_t>> splits;
    for (const auto& host : hosts_) {
      host->exchange()->Merge(host->writers(), RunInline);
      sent.push_back(Sent(host.get(), &splits));
    }
    if (exchange_ == Exchange::kOwner) {
      std::vector<std::vector<int64_t>> merged;
      for (size_t owner = 0; owner < hosts_.size(); ++owner) {
        std::vector<int64_t> messages;
        for (size_t from = 0; from < hosts_.size(); ++from) {
          int64_t at = 0;
          for (size_t before = 0; before < owner; ++before) at += splits[from][before];
          messages.insert(messages.end(), sent[from].begin() + at,
                          sent[from].begin() + at + splits[from][owner]);
        }
        hosts_[owner]->exchange()->MergeOwned(messages, RunInline);
        merged.push_back(Sent(hosts_[owner].get(), nullptr));
      }
      sent = std::move(merged);
    }
    std::vector<int64_t> all;
    for (const auto& words : sent) all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  static std::vector<int64_t> Sent(Host* host, std::vector<std::vector<int64_t>>* splits) {
    int64_t total = 0;
    for (const int64_t size : host->exchange()->Splits()) total += size;
    std::vector<int64_t> words(static_cast<size_t>(total), -1);
    host->exchange()->Fill(words, RunInline);
    if (splits != nullptr) splits->push_back(host->exchange()->Splits());
    return words;
  }

  // The messages lie end to end for the first host, and apart for the others.
  void Apply(const std::vector<int64_t>& words) {
    const BatchKeys none(0);
    const auto apart = ParseMessages(kSchema, words, static_cast<int64_t>(hosts_.size()));
    for (const auto& host : hosts_) {
      const auto staged = host == hosts_.front()
                              ? host->exchange()->Stage(words, host->writers(), RunInline)
                              : host->exchange()->Stage(apart, &none, host->writers(), RunInline);
      ASSERT_EQ("", staged.complaint);
      EXPECT_OK(host->update()->Commit({kRates}, host->writers(), RunInline));
    }
  }

  std::vector<std::unique_ptr<TemporaryDirectory>> folders_;
  std::vector<std::unique_ptr<Host>> hosts_;
  Exchange exchange_ = Exchange::kLeaders;
};

class BothWaysTest : public HostExchangeTest, public testing::WithParamInterface<Exchange> {};

INSTANTIATE_TEST_SUITE_P(, BothWaysTest, testing::Values(Exchange::kLeaders, Exchange::kOwner),
                         [](const auto& info) {
                           return info.param == Exchange::kOwner ? "owner" : "leaders";
                         });

// Against one host that gets all ranks' own messages.
TEST_P(BothWaysTest, GiveTheBitsOfOneMerge) {
  for (const Reduction reduction : {Reduction::kFrequency, Reduction::kMean, Reduction::kSum}) {
    for (const std::vector<int64_t>& ranks :
         {std::vector<int64_t>{2, 2}, {1, 2, 1}, {3, 1}, {1, 1, 1, 1}}) {
      Make(GetParam(), ranks, 0, reduction);
      const TemporaryDirectory folder;
      std::vector<int64_t> host_of;
      for (size_t host = 0; host < ranks.size(); ++host) {
        host_of.insert(host_of.end(), static_cast<size_t>(ranks[host]), static_cast<int64_t>(host));
      }
      Host reference(folder.path(), {kSchema, host_of, reduction, Exchange::kAllRanks});
      std::mt19937_64 random(3);
      for (int step = 0; step < 6; ++step) {
        std::vector<int64_t> all;
        for (size_t host = 0; host < ranks.size(); ++host) {
          for (int64_t rank = 0; rank < ranks[host]; ++rank) {
            // One rank without keys; steps that make several units of a table.
            const int64_t keys = step == 2 && rank == 0 ? 0 : step == 4 ? 9000 : 50;
            const Batch batch = RandomBatch(&random, keys, step == 4 ? 40000 : 80);
            hosts_[host]->Post(static_cast<size_t>(rank), batch);
            const std::vector<int64_t> counts = CountsOf(batch);
            std::vector<int64_t> words(static_cast<size_t>(MessageWords(kSchema, counts)));
            Fill(batch, MessageBuilder(kSchema, counts, words));
            all.insert(all.end(), words.begin(), words.end());
          }
        }
        Apply(Send());
        ASSERT_OK(reference.update()->PostAll(all));
        const auto messages = reference.update()->ReadAll();
        ASSERT_OK(messages);
        ASSERT_OK(
            reference.update()->Apply(messages.value(), {kRates}, reference.writers(), RunInline));
        for (const auto& host : hosts_) {
          EXPECT_EQ(reference.Digest(0), host->Digest(0)) << "step " << step;
          EXPECT_EQ(reference.Digest(1), host->Digest(1)) << "step " << step;
        }
      }
    }
  }
}

TEST_P(BothWaysTest, RoundedMessagesAreHalfAsLongAndTheSameOnAllHosts) {
  std::vector<size_t> words;
  for (const int64_t form : {int64_t{0}, kBfloat16}) {
    Make(GetParam(), {2, 1}, form);
    std::mt19937_64 random(4);
    for (int step = 0; step < 3; ++step) {
      hosts_[0]->Post(0, RandomBatch(&random, 100, 300));
      hosts_[0]->Post(1, RandomBatch(&random, 100, 300));
      hosts_[1]->Post(0, RandomBatch(&random, 100, 300));
      const std::vector<int64_t> all = Send();
      words.push_back(all.size());
      Apply(all);
      EXPECT_EQ(hosts_[0]->Digest(0), hosts_[1]->Digest(0));
      EXPECT_EQ(hosts_[0]->Digest(1), hosts_[1]->Digest(1));
    }
  }
  for (size_t step = 0; step < 3; ++step) EXPECT_LT(words[step + 3], words[step]);
}

TEST_P(BothWaysTest, WhatOneRankSkipsNobodyApplies) {
  Make(GetParam(), {1, 2});
  std::mt19937_64 random(5);
  for (const bool skip : {false, true, true}) {
    const uint64_t before = hosts_[1]->Digest(0);
    hosts_[0]->Post(0, RandomBatch(&random, 10, 30));
    hosts_[1]->Post(0, RandomBatch(&random, 10, 30), skip);
    hosts_[1]->Post(1, RandomBatch(&random, 10, 30));
    const uint64_t version = hosts_[0]->version();
    Apply(Send());
    EXPECT_EQ(version + 1, hosts_[0]->version());
    EXPECT_EQ(hosts_[0]->Digest(0), hosts_[1]->Digest(0));
    EXPECT_EQ(skip, before == hosts_[1]->Digest(0));
  }
}

TEST_P(BothWaysTest, WhatOneHostCannotBringIsToldToAll) {
  Make(GetParam(), {1, 1, 1});
  std::mt19937_64 random(6);
  for (int step = 0; step < 2; ++step) {
    hosts_[0]->Post(0, RandomBatch(&random, 10, 30));
    hosts_[1]->update()->PostFailure("rank 1 has nothing to say");
    hosts_[2]->Post(0, RandomBatch(&random, 10, 30));
    const std::vector<int64_t> all = Send();
    for (const auto& host : hosts_) {
      const auto staged = host->exchange()->Stage(all, host->writers(), RunInline);
      EXPECT_EQ("rank 1 has nothing to say", staged.complaint);
      EXPECT_FALSE(staged.vote);
      EXPECT_EQ(static_cast<uint64_t>(step), host->version());
    }
    if (step > 0) continue;
    for (const auto& host : hosts_) host->Post(0, RandomBatch(&random, 10, 30));
    Apply(Send());
  }
}

// A vote is asked for on all hosts alike, and only where something has to grow.
TEST_P(BothWaysTest, HostsVoteWhereOneMayHaveNoRoom) {
  Make(GetParam(), {1, 1});
  std::mt19937_64 random(7);
  int votes = 0;
  for (int step = 0; step < 12; ++step) {
    for (const auto& host : hosts_) host->Post(0, RandomBatch(&random, 40 << step, 100 << step));
    const std::vector<int64_t> all = Send();
    std::set<bool> asked;
    for (const auto& host : hosts_) {
      const auto staged = host->exchange()->Stage(all, host->writers(), RunInline);
      EXPECT_EQ("", staged.complaint);
      asked.insert(staged.vote);
      EXPECT_OK(host->update()->Commit({kRates}, host->writers(), RunInline));
    }
    ASSERT_EQ(1u, asked.size());
    votes += *asked.begin();
    // The same keys again: nothing grows.
    for (const auto& host : hosts_) host->Post(0, {{{1}, {2}}, {{1, 1, 1}, {1, 1}}});
    const std::vector<int64_t> again = Send();
    for (const auto& host : hosts_) {
      EXPECT_FALSE(host->exchange()->Stage(again, host->writers(), RunInline).vote);
      EXPECT_OK(host->update()->Commit({kRates}, host->writers(), RunInline));
    }
  }
  EXPECT_GT(votes, 3);
  EXPECT_EQ(hosts_[0]->Digest(0), hosts_[1]->Digest(0));
}

}  // namespace
}  // namespace tfhybrid::host_exchange_test
