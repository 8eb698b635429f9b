// A store that an earlier commit wrote is read by today's code, and today's code writes the same
// bytes: no change of the format goes unnoticed.
//
// Where it was meant to change: raise kFormatVersion, change docs/store_format.md, and let
//     TFHYBRID_WRITE_GOLDEN=1 build/native/tests/native_tests --gtest_filter='GoldenStore*'
// write golden/store anew.
#include "golden/golden_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_digest.h"
#include "core/update/mailbox.h"
#include "core/update/recovery.h"
#include "golden/golden_rows.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::golden_store_test {
namespace {

const std::string& KeptIn() {
  static const std::string* const path =
      new std::string(std::filesystem::path(__FILE__).parent_path() / "store");
  return *path;
}

bool WithTodaysFormat(const Files& files) {
  return std::all_of(files.begin(), files.end(), [](const auto& file) {
    return HeaderOf(file.second).format == kFormatVersion;
  });
}

void Keep(const Files& files) {
  std::filesystem::create_directory(KeptIn());
  const Files kept = ReadFiles(KeptIn());
  ASSERT_TRUE(files == kept || kept.empty() || !WithTodaysFormat(kept))
      << "the bytes have changed: raise kFormatVersion first";
  for (const auto& [name, content] : kept) std::filesystem::remove(KeptIn() + "/" + name);
  for (const auto& [name, content] : files) WriteFile(KeptIn() + "/" + name, content);
}

std::vector<std::string> Names(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  return names;
}

class GoldenStoreTest : public testing::Test {
 protected:
  // Puts the kept store where a dead job of this user would have left it.
  void SetUp() override {
    store_ = directory_.File("tfhybrid-" + std::to_string(geteuid()) + "-golden");
    ASSERT_EQ(0, mkdir(store_.c_str(), 0700));
    WriteFiles(Restored(ReadFiles(KeptIn())), store_);
  }

  const StoreConfig config_ = GoldenStoreConfig("");
  TemporaryDirectory directory_;
  std::string store_;
};

TEST(GoldenStoreBytesTest, AreWrittenToday) {
  const TemporaryDirectory directory;
  const Files made = MakeGoldenStore(directory.path());
  if (std::getenv("TFHYBRID_WRITE_GOLDEN") != nullptr) return Keep(made);
  Files kept = ReadFiles(KeptIn());
  ASSERT_EQ(Names(kept), Names(made));
  for (const auto& [name, content] : made) {
    const std::string& other = kept[name];
    const auto differ = std::mismatch(content.begin(), content.end(), other.begin(), other.end());
    EXPECT_TRUE(content == other) << name << " differs from byte " << differ.first - content.begin()
                                  << " on: a change of the format raises kFormatVersion";
  }
}

TEST_F(GoldenStoreTest, EveryRowIsReadByARank) {
  auto reader = TableReader::Open(store_, config_.token, kGoldenTable);
  ASSERT_OK(reader);
  EXPECT_EQ(kGoldenTable, reader.value()->name());
  EXPECT_EQ(1u, reader.value()->version());
  ASSERT_EQ(static_cast<int64_t>(std::size(kGoldenRows)), reader.value()->Stats().rows);
  for (size_t i = 0; i < std::size(kGoldenRows); ++i) {
    const GoldenRow& row = kGoldenRows[i];
    int64_t key;
    float embedding[kGoldenDim], found[kGoldenDim];
    ASSERT_OK(reader.value()->ReadRows(static_cast<int64_t>(i), 1, &key, embedding));
    ASSERT_OK(reader.value()->Lookup(Span<const int64_t>(&row.key, 1), found));
    EXPECT_EQ(row.key, key);
    EXPECT_EQ(0, std::memcmp(row.embedding, embedding, sizeof(embedding))) << row.key;
    EXPECT_EQ(0, std::memcmp(row.embedding, found, sizeof(found))) << row.key;
  }
}

TEST_F(GoldenStoreTest, KeyWithoutARowReadsItsInitialValue) {
  auto reader = TableReader::Open(store_, config_.token, kGoldenTable);
  ASSERT_OK(reader);
  const int64_t key = 123456789;
  float found[kGoldenDim];
  ASSERT_OK(reader.value()->Lookup(Span<const int64_t>(&key, 1), found));
  EXPECT_EQ(0, std::memcmp(kGoldenInitialRow, found, sizeof(found)));
}

TEST_F(GoldenStoreTest, EveryStateIsReadByANewLeader) {
  auto writer = TableWriter::Attach(store_, config_.token, kGoldenTable);
  ASSERT_OK(writer);
  EXPECT_EQ(OptimizerKind::kAdagrad, writer.value()->optimizer().kind);
  EXPECT_EQ(0.1f, writer.value()->optimizer().initial_accumulator_value);
  EXPECT_EQ(1e-7f, writer.value()->optimizer().epsilon);
  for (size_t i = 0; i < std::size(kGoldenRows); ++i) {
    float state[kGoldenDim];
    ASSERT_OK(writer.value()->chunks().ReadState(static_cast<int64_t>(i), 1, state));
    EXPECT_EQ(0, std::memcmp(kGoldenRows[i].accumulator, state, sizeof(state))) << i;
  }
}

TEST_F(GoldenStoreTest, JournalTellsOfTheUpdate) {
  auto journal = UpdateJournal::Open(store_ + "/" + kGoldenUpdate, config_.token);
  ASSERT_OK(journal);
  const UpdateSettings& settings = journal.value().settings();
  EXPECT_EQ(GoldenSettings().schema.tables, settings.schema.tables);
  EXPECT_EQ(GoldenSettings().schema.dims, settings.schema.dims);
  EXPECT_EQ(GoldenSettings().hosts, settings.hosts);
  EXPECT_EQ(Reduction::kSum, settings.reduction);
  EXPECT_EQ(Exchange::kLeaders, settings.exchange);
  EXPECT_FALSE(journal.value().begun());
  EXPECT_EQ(1u, journal.value().beginning(0).version);
  EXPECT_EQ(1.0, journal.value().beginning(0).decay);
  EXPECT_EQ(1.0f, journal.value().beginning(0).clip_factor);
  EXPECT_EQ(kGoldenRate, journal.value().beginning(0).learning_rate);
}

TEST_F(GoldenStoreTest, MessageLiesInTheMailbox) {
  auto mailbox = MailboxReader::Open(store_ + "/" + kGoldenUpdate + ".0", config_.token);
  ASSERT_OK(mailbox);
  auto words = mailbox.value().Words();
  ASSERT_OK(words);
  const auto messages = ParseMessages(GoldenSettings().schema, words.value(), 1);
  ASSERT_OK(messages);
  ASSERT_EQ(14, messages.value()[0].keys[0].size());
  EXPECT_EQ(-1, messages.value()[0].keys[0][0]);
  EXPECT_EQ(11, messages.value()[0].keys[0][13]);
  EXPECT_EQ(1.0f, messages.value()[0].gradients[0][6]);
}

TEST_F(GoldenStoreTest, IsTakenOverAsAWhole) {
  const auto store = RecoverStore(GoldenStoreConfig(directory_.path()), RunInline);
  ASSERT_OK(store);
  const auto table = store.value()->Find(kGoldenTable);
  ASSERT_NE(nullptr, table);
  const auto digest = TableDigest(table.get());
  ASSERT_OK(digest);
  EXPECT_EQ(kGoldenDigest, digest.value());
}

}  // namespace
}  // namespace tfhybrid::golden_store_test
