#include "core/update/table_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shm/child_process.h"
#include "store/table_fixture.h"

namespace tfhybrid::table_update_test {
namespace {

using Ranks = std::vector<std::vector<std::pair<int64_t, float>>>;  // per rank: key and gradient

class TableUpdateTest : public TableFixture {
 protected:
  // A table of dim 1 whose rows start at zero, updated by plain SGD.
  std::unique_ptr<TableWriter> SgdTable(const std::string& name, double momentum = 0.0,
                                        uint32_t flags = 0) {
    TableConfig config = ConfigOf(name, 1);
    config.initializer = {};
    auto writer = Create(config);
    OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kSgd);
    optimizer.momentum = momentum;
    optimizer.flags = flags;
    EXPECT_OK(writer->SetOptimizer(optimizer));
    return writer;
  }

  static UpdateSettings SettingsOf(std::vector<int64_t> hosts, Reduction reduction,
                                   const std::vector<TableWriter*>& tables) {
    UpdateSettings settings;
    settings.hosts = std::move(hosts);
    settings.reduction = reduction;
    for (const TableWriter* table : tables) {
      settings.schema.tables.push_back(table->name());
      settings.schema.dims.push_back(table->dim());
    }
    return settings;
  }

  TableUpdate MakeUpdate(std::vector<int64_t> hosts, Reduction reduction,
                         const std::vector<TableWriter*>& tables) {
    const std::string path = directory_.path() + "/update" + std::to_string(updates_++);
    int64_t row_floats = 0;
    for (const TableWriter* table : tables) {
      row_floats = std::max(row_floats, table->dim() + table->chunks().state_floats());
    }
    auto journal = UpdateJournal::Create(
        path, kToken, SettingsOf(std::move(hosts), reduction, tables), row_floats);
    EXPECT_OK(journal);
    return TableUpdate(journal.Take());
  }

  // One step of `tables`, each of which gets the same gradients; learning rate -1, so that rows
  // become the gradients.
  Status Run(TableUpdate* update, const Ranks& ranks, const std::vector<TableWriter*>& tables) {
    keys_.assign(ranks.size(), {});
    gradients_.assign(ranks.size(), {});
    std::vector<GradientMessage> messages(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const auto& [key, gradient] : ranks[rank]) {
        keys_[rank].push_back(key);
        gradients_[rank].push_back(gradient);
      }
      messages[rank].header.samples = 1;
      for (size_t t = 0; t < tables.size(); ++t) {
        messages[rank].ranks.push_back(nullptr);
        messages[rank].keys.emplace_back(keys_[rank].data(),
                                         static_cast<int64_t>(keys_[rank].size()));
        messages[rank].gradients.push_back(gradients_[rank].data());
      }
    }
    const std::vector<float> rates(tables.size(), -1.0f);
    return Run(update, messages, rates, tables);
  }
  static Status Run(TableUpdate* update, const std::vector<GradientMessage>& messages,
                    const std::vector<float>& rates, const std::vector<TableWriter*>& tables) {
    TFHYBRID_RETURN_IF_ERROR(update->Stage(messages, tables, RunInline));
    return update->Commit({rates}, tables, RunInline);
  }

  // The message of a rank whose batch has a sample, but no key of the one table.
  static GradientMessage WithoutKeys() {
    GradientMessage message;
    message.header.samples = 1;
    message.keys.emplace_back();
    message.ranks.push_back(nullptr);
    message.gradients.push_back(nullptr);
    return message;
  }

  std::vector<float> Reduce(const std::string& name, std::vector<int64_t> hosts,
                            Reduction reduction, const Ranks& ranks,
                            const std::vector<int64_t>& keys) {
    const auto table = SgdTable(name);
    TableUpdate update = MakeUpdate(std::move(hosts), reduction, {table.get()});
    EXPECT_OK(Run(&update, ranks, {table.get()}));
    return Lookup(Open(name).get(), keys);
  }

 private:
  int updates_ = 0;
  std::vector<std::vector<int64_t>> keys_;
  std::vector<std::vector<float>> gradients_;
};

// The patent's example: rank 0 holds gradients of e, g, i, rank 1 of f, h, i, rank 2 of e, g, i.
TEST_F(TableUpdateTest, DivisorsOfThePatentsExample) {
  const Ranks ranks = {{{'e', 12}, {'g', 24}, {'i', 36}},
                       {{'f', 48}, {'h', 60}, {'i', 72}},
                       {{'e', 84}, {'g', 96}, {'i', 108}}};
  const std::vector<int64_t> keys = {'e', 'f', 'g', 'h', 'i'};
  const std::vector<float> sums = {96, 48, 120, 60, 216};
  const std::vector<float> divisors = {2, 1, 2, 1, 3};
  std::vector<float> by_frequency, by_rank;
  for (size_t i = 0; i < sums.size(); ++i) {
    by_frequency.push_back(sums[i] * (1.0f / divisors[i]));
    by_rank.push_back(sums[i] * (1.0f / 3.0f));
  }
  const std::vector<std::vector<int64_t>> layouts = {{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {0, 1, 1}};
  for (const std::vector<int64_t>& hosts : layouts) {
    const std::string name = std::to_string(hosts[1]) + std::to_string(hosts[2]);
    EXPECT_EQ(by_frequency, Reduce("f" + name, hosts, Reduction::kFrequency, ranks, keys));
    EXPECT_EQ(sums, Reduce("s" + name, hosts, Reduction::kSum, ranks, keys));
    EXPECT_EQ(by_rank, Reduce("m" + name, hosts, Reduction::kMean, ranks, keys));
  }
}

// Floats whose sum shows in which order it was formed: 1 is lost beside 2^24 unless another 1 came
// first.
TEST_F(TableUpdateTest, SumsByLocalRankAndThenByHost) {
  constexpr float kBig = 16777216.0f;
  const Ranks ranks = {{{1, kBig}}, {{1, 1.0f}}, {{1, 1.0f}}, {{1, -kBig}}};
  const auto sum = [&](const std::string& name, const std::vector<int64_t>& hosts) {
    return Reduce(name, hosts, Reduction::kSum, ranks, {1})[0];
  };
  EXPECT_EQ(((kBig + 1.0f) + 1.0f) - kBig, sum("one_host", {0, 0, 0, 0}));
  EXPECT_EQ(((kBig + 1.0f) + 1.0f) - kBig, sum("four_hosts", {0, 1, 2, 3}));
  EXPECT_EQ((kBig + 1.0f) + (1.0f - kBig), sum("two_hosts", {0, 0, 1, 1}));
  EXPECT_EQ((kBig + (1.0f + 1.0f)) - kBig, sum("three_hosts", {0, 1, 1, 2}));
  EXPECT_EQ(2.0f, sum("three_hosts_again", {0, 1, 1, 2}));
  EXPECT_EQ(0.0f, sum("one_host_again", {0, 0, 0, 0}));
}

TEST_F(TableUpdateTest, OneKeyInEveryOneOfManyRanks) {
  const Ranks ranks(1000, {{kMinKey, 1.0f}, {kMaxKey, 2.0f}});
  EXPECT_EQ(
      (std::vector<float>{1000.0f * (1.0f / 1000.0f), 2000.0f * (1.0f / 1000.0f)}),
      Reduce("t", std::vector<int64_t>(1000, 0), Reduction::kFrequency, ranks, {kMinKey, kMaxKey}));
}

TEST_F(TableUpdateTest, AStepOfManyKeysIsCutIntoUnitsAndLosesNone) {
  const auto table = SgdTable("t");
  TableUpdate update = MakeUpdate({0, 0, 0}, Reduction::kSum, {table.get()});
  Ranks ranks(3);
  for (int64_t key = 0; key < 60000; ++key) {
    ranks[static_cast<size_t>(key % 3)].emplace_back(key, static_cast<float>(key));
    if (key % 5 == 0) ranks[static_cast<size_t>((key + 1) % 3)].emplace_back(key, 1.0f);
  }
  ASSERT_OK(Run(&update, ranks, {table.get()}));
  EXPECT_EQ(60000, table->rows());
  std::vector<float> wanted;
  for (int64_t key = 0; key < 60000; ++key) {
    wanted.push_back(static_cast<float>(key) + (key % 5 == 0 ? 1.0f : 0.0f));
  }
  EXPECT_EQ(wanted, Lookup(Open("t").get(), KeysBetween(0, 60000)));
}

// What the leader's lookup has found is believed for the same keys at the same positions, until a
// row moves: a lie shows that. With one unit and with several, and with keys of another rank.
TEST_F(TableUpdateTest, RowsThatALookupHasFoundAreNotFoundAgain) {
  for (const int64_t count : {100, 50000}) {
    for (const size_t others : {0, 1}) {
      const auto table = SgdTable(std::to_string(count) + "and" + std::to_string(others));
      TableUpdate update =
          MakeUpdate(std::vector<int64_t>(1 + others, 0), Reduction::kSum, {table.get()});
      Ranks ranks(1 + others);
      std::vector<int64_t> keys;
      for (int64_t key = count; key-- > 0;) {
        keys.push_back(key);
        ranks[0].emplace_back(key, static_cast<float>(key));
        if (others > 0 && key % 2 == 0) ranks[1].emplace_back(key + count, 1.0f);
      }
      ASSERT_OK(Run(&update, ranks, {table.get()}));
      RowSet set;
      table->Find(keys, &set);
      const auto liar = static_cast<size_t>(count - 4);  // key 3
      set.rows[liar] = set.rows[0];                      // of the last key
      set.rows[1] = KeyIndex::kMissing;                  // it had none then
      std::vector<int64_t> found = keys;
      found[2] = -1;              // another key,
      set.rows[2] = set.rows[0];  // which lies elsewhere
      const uint64_t moves = table->page().counters().moves;
      table->index().known_rows()->Keep({nullptr, found, {moves, set.rows}});
      ranks[0].emplace_back(-7, 5.0f);  // beyond those of the lookup, and new
      ASSERT_OK(Run(&update, ranks, {table.get()}));
      const auto rows_of = [&] {
        return Lookup(Open(table->name()).get(), {3, count - 1, count - 2, count - 3, 5, -7});
      };
      const auto top = static_cast<float>(count);
      EXPECT_EQ((std::vector<float>{3, 2 * top - 2 + 3, 2 * top - 4, 2 * top - 6, 10, 5}),
                rows_of());
      NoteMoves(&table->page().counters());
      ASSERT_OK(Run(&update, ranks, {table.get()}));
      EXPECT_EQ((std::vector<float>{6, 3 * top - 3 + 3, 3 * top - 6, 3 * top - 9, 15, 10}),
                rows_of());
    }
  }
}

// Momentum of a half: a gradient of 8 moves a row by 8, and by 4, 2, 1 in the steps that follow.
TEST_F(TableUpdateTest, EveryRowIsUpdatedWhereTheOptimizerWantsIt) {
  const auto lazy = SgdTable("lazy", 0.5), every = SgdTable("every", 0.5, kEveryRow);
  const std::vector<TableWriter*> tables = {lazy.get(), every.get()};
  TableUpdate update = MakeUpdate({0, 0}, Reduction::kFrequency, tables);
  Ranks ranks(2);
  for (int64_t key = 0; key < 60000; ++key) ranks[key % 2].emplace_back(key, 8.0f);
  ASSERT_OK(Run(&update, ranks, tables));
  ASSERT_OK(Run(&update, {{{7, 16.0f}, {70000, 2.0f}}, {{70000, 4.0f}}}, tables));
  ASSERT_OK(Run(&update, {{}, {}}, tables));

  const auto all = Open("every"), touched = Open("lazy");
  EXPECT_EQ((std::vector<float>{8 + 4 + 2, 8 + 20 + 10, 3 + 1.5, 0}),
            Lookup(all.get(), {59999, 7, 70000, 70001}));
  EXPECT_EQ((std::vector<float>{8, 8 + 20, 3, 0}), Lookup(touched.get(), {59999, 7, 70000, 70001}));
  const std::vector<float> rows = Lookup(all.get(), KeysBetween(0, 60000));
  EXPECT_EQ(59999, std::count(rows.begin(), rows.end(), 14.0f));
}

TEST_F(TableUpdateTest, AStepThatIsSkippedUpdatesNoRow) {
  const auto table = SgdTable("t", 0.5, kEveryRow);
  TableUpdate update = MakeUpdate({0}, Reduction::kSum, {table.get()});
  ASSERT_OK(Run(&update, {{{1, 8.0f}}}, {table.get()}));
  GradientMessage nonfinite = WithoutKeys(), empty = WithoutKeys();
  nonfinite.header.skip = 1;
  empty.header.samples = 0;
  for (const GradientMessage& message : {nonfinite, empty}) {
    ASSERT_OK(Run(&update, {message}, {-1.0f}, {table.get()}));
    EXPECT_EQ(std::vector<float>{8}, Lookup(Open("t").get(), {1}));
  }
  ASSERT_OK(Run(&update, {WithoutKeys()}, {-1.0f}, {table.get()}));
  EXPECT_EQ(std::vector<float>{12}, Lookup(Open("t").get(), {1}));
}

TEST_F(TableUpdateTest, EveryRowOfATableThatEvictsIsRefused) {
  TableConfig config = ConfigOf("t", 1);
  config.policy.kind = PolicyKind::kRows;
  const auto table = Create(config);
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kAdam);
  optimizer.flags = kEveryRow;
  ExpectError(table->SetOptimizer(optimizer), StatusCode::kInvalidArgument,
              {"'t'", "neither admitted nor evicted"});
  EXPECT_EQ(OptimizerKind::kNone, table->optimizer().kind);
}

TEST_F(TableUpdateTest, EveryTableCountsAVersionAndScratchIsReused) {
  const auto first = SgdTable("first"), second = SgdTable("second");
  TableUpdate update = MakeUpdate({0, 0}, Reduction::kSum, {first.get(), second.get()});
  for (uint64_t version = 1; version <= 5; ++version) {
    const auto key = static_cast<int64_t>(version);
    ASSERT_OK(Run(&update, {{{key, 1.0f}}, {{0, 1.0f}}}, {first.get(), second.get()}));
    EXPECT_EQ(version, first->version());
    EXPECT_EQ(version, second->version());
  }
  ASSERT_OK(Run(&update, {{}, {}}, {first.get(), second.get()}));
  EXPECT_EQ(6u, first->version());
  EXPECT_EQ((std::vector<float>{5, 1, 1, 1, 1, 1, 0}),
            Lookup(Open("second").get(), {0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(TableUpdateTest, IfOneTableCannotGrowNoneIsUpdatedAndWaitersCanBeTold) {
  const std::string impossible = RunOnOwnTmpfs(directory_.path(), "size=800k", [&] {
    const auto small = SgdTable("small");
    TableConfig config = ConfigOf("wide", 1024);
    const auto wide = Create(config);
    ASSERT_OK(wide->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    TableUpdate update = MakeUpdate({0}, Reduction::kSum, {small.get(), wide.get()});
    std::vector<int64_t> keys = KeysBetween(0, 200);
    const std::vector<float> gradients(200 * 1024, 1.0f);
    GradientMessage message;
    message.ranks = {nullptr, nullptr};
    message.keys.assign(2, keys);
    message.gradients.assign(2, gradients.data());
    const std::vector<float> rates = {0.1f, 0.1f};
    const Status full = Run(&update, {message}, rates, {small.get(), wide.get()});
    ExpectError(full, StatusCode::kResourceExhausted, {"table 'wide'"});
    for (TableWriter* table : {small.get(), wide.get()}) table->PublishFailure(full);
    for (const char* name : {"small", "wide"}) {
      const auto reader = Open(name);
      EXPECT_EQ(0, reader->Stats().rows);
      EXPECT_EQ(0u, reader->version());
      EXPECT_TRUE(reader->Reached(1));
      ExpectError(reader->WaitVersion(1, [] { return Status::Ok(); }),
                  StatusCode::kResourceExhausted, {name, "No room for table 'wide'"});
    }
    keys.resize(3);
    message.keys.assign(2, keys);
    EXPECT_OK(Run(&update, {message}, rates, {small.get(), wide.get()}));
    EXPECT_EQ(1u, wide->version());
    EXPECT_EQ(3, small->rows());
  });
  if (!impossible.empty()) GTEST_SKIP() << impossible;
}

TEST_F(TableUpdateTest, AStepOfWhichNothingIsAppliedDecaysNothing) {
  const auto table = Create(ConfigOf("item", 1));
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kSgd);
  optimizer.weight_decay = 0.5;
  ASSERT_OK(table->SetOptimizer(optimizer));
  TableUpdate update = MakeUpdate({0}, Reduction::kFrequency, {table.get()});
  std::vector<GradientMessage> messages = {WithoutKeys()};
  const auto decay_after = [&](int64_t samples, int64_t skip) {
    messages[0].header.samples = samples;
    messages[0].header.skip = skip;
    EXPECT_OK(Run(&update, messages, {0.5f}, {table.get()}));
    return table->page().decay();
  };
  EXPECT_EQ(0.75, decay_after(1, 0));
  EXPECT_EQ(0.75, decay_after(1, 1));
  EXPECT_EQ(0.75, decay_after(0, 0));
  EXPECT_EQ(0.75 * 0.75, decay_after(1, 0));
  EXPECT_EQ(4u, table->version());
}

TEST_F(TableUpdateTest, ALearningRateTooLargeForTheDecayChangesNothing) {
  const auto table = Create(ConfigOf("item", 1));
  OptimizerConfig optimizer = OptimizerOf(OptimizerKind::kSgd);
  optimizer.weight_decay = 2.0;
  ASSERT_OK(table->SetOptimizer(optimizer));
  TableUpdate update = MakeUpdate({0}, Reduction::kFrequency, {table.get()});
  for (const float rate : {0.5f, 1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    ExpectError(Run(&update, {WithoutKeys()}, {rate}, {table.get()}), StatusCode::kInvalidArgument,
                {"'item'", "weight_decay must be below 1", "times 2"});
  }
  EXPECT_EQ(0u, table->version());
  EXPECT_EQ(1.0, table->page().decay());
}

TEST_F(TableUpdateTest, ReductionsHaveNames) {
  EXPECT_EQ(Reduction::kFrequency, ParseReduction("frequency").value());
  EXPECT_EQ(Reduction::kSum, ParseReduction("sum").value());
  EXPECT_EQ(Reduction::kMean, ParseReduction("mean").value());
  ExpectError(ParseReduction("average").status(), StatusCode::kInvalidArgument,
              {"Received: 'average'"});
}

}  // namespace
}  // namespace tfhybrid::table_update_test
