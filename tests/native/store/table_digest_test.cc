#include "core/store/table_digest.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/store/table_loader.h"
#include "store/table_fixture.h"

namespace tfhybrid::table_digest_test {
namespace {

class TableDigestTest : public TableFixture {
 protected:
  // A table of its own, `keys` written in that order, with rows that follow from the keys.
  std::unique_ptr<OpenTable> Table(const std::string& name, const std::vector<int64_t>& keys) {
    auto table = std::make_unique<OpenTable>();
    table->writer = Create(ConfigOf(name, 3));
    table->reader = Open(name);
    EXPECT_OK(table->writer->SetOptimizer(OptimizerOf(OptimizerKind::kAdagrad)));
    Write(table.get(), keys, 0.0f);
    return table;
  }
  static void Write(OpenTable* table, const std::vector<int64_t>& keys, float state) {
    std::vector<float> rows;
    for (const int64_t key : keys) rows.insert(rows.end(), 3, static_cast<float>(key % 1000));
    const std::vector<float> states(rows.size(), state);
    EXPECT_OK(TableLoader(table->writer.get())
                  .WriteRows(keys, rows.data(), states.data(), nullptr, RunInline));
  }
  static uint64_t Digest(OpenTable* table) {
    const Result<uint64_t> digest = TableDigest(table);
    EXPECT_OK(digest);
    return digest.value();
  }
};

TEST_F(TableDigestTest, DoesNotDependOnWhereRowsLie) {
  std::vector<int64_t> keys = KeysBetween(-5000, 5000);
  const auto table = Table("a", keys);
  std::vector<int64_t> reversed(keys.rbegin(), keys.rend());
  EXPECT_EQ(Digest(table.get()), Digest(Table("b", reversed).get()));
}

TEST_F(TableDigestTest, ChangesWithKeyEmbeddingAndState) {
  const auto table = Table("a", {1, 2, 3});
  const uint64_t digest = Digest(table.get());
  EXPECT_NE(digest, Digest(Table("fewer", {1, 2}).get()));
  EXPECT_NE(digest, Digest(Table("other_key", {1, 2, 1003}).get()));
  Write(table.get(), {2}, 1.0f);
  EXPECT_NE(digest, Digest(table.get()));
  Write(table.get(), {2}, 0.0f);
  EXPECT_EQ(digest, Digest(table.get()));
  const std::vector<int64_t> keys = {2};
  const float moved[] = {2, 3, 2};
  const float states[] = {0, 0, 0};
  ASSERT_OK(TableLoader(table->writer.get()).WriteRows(keys, moved, states, nullptr, RunInline));
  EXPECT_NE(digest, Digest(table.get()));
}

TEST_F(TableDigestTest, OfAnEmptyTableIsZero) { EXPECT_EQ(0u, Digest(Table("a", {}).get())); }

}  // namespace
}  // namespace tfhybrid::table_digest_test
