#include "core/engine/placed_tables.h"

#include <memory>
#include <string>
#include <vector>

#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"
#include "store/table_fixture.h"

namespace tfhybrid::placed_tables_test {
namespace {

constexpr int64_t kHost = 1;

// The tables of the second one of three hosts.
class PlacedTablesTest : public testing::Test {
 protected:
  PlacedTablesTest() {
    std::vector<std::string> reclaimed;
    store_ = Store::Create({directory_.path(), "job", 0, "rank 1", kToken}, &reclaimed).Take();
    tables_ = std::make_unique<PlacedTables>(store_, Topology{{0, 1, 2}, kHost, 0});
  }
  static TableConfig Config(const std::string& name) {
    return {name, 2, {InitializerKind::kZeros, 0, 0}, 99};
  }

  TemporaryDirectory directory_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<PlacedTables> tables_;
};

TEST_F(PlacedTablesTest, AnUnknownTableIsAnErrorThatSaysWhatIsMissing) {
  ExpectError(tables_->Get("items").status(), StatusCode::kNotFound, {"'items'", "init()"});
  ASSERT_OK(tables_->Open(Config("item"), {}, 0));
  EXPECT_EQ(store_->Find("item"), tables_->Get("item").Take());
  EXPECT_EQ(store_->Find("item"), tables_->Await("item").Take());
  store_->EndWaits();
  EXPECT_FALSE(tables_->Await("items").ok()) << "nobody will open it";
}

TEST_F(PlacedTablesTest, EachHasTheOwnersOfItsPlacement) {
  ASSERT_OK(tables_->Open(Config("here"), {}, 0));
  ASSERT_OK(tables_->Open(Config("by_key"), {PlacementKind::kByKey, 0}, 0));
  ASSERT_OK(tables_->Open(Config("whole"), {PlacementKind::kWhole, 2}, 0));
  EXPECT_EQ(nullptr, tables_->AllocationOf("here"));
  EXPECT_EQ(nullptr, tables_->OwnsOf("here"));
  const auto owns = tables_->OwnsOf("by_key"), owns_whole = tables_->OwnsOf("whole");
  int owned = 0;
  for (int64_t key = 0; key < 300; ++key) {
    EXPECT_EQ(tables_->AllocationOf("by_key")->OwnerOf(key) == kHost, owns(key));
    EXPECT_FALSE(owns_whole(key));
    EXPECT_EQ(2, tables_->AllocationOf("whole")->OwnerOf(key));
    owned += owns(key) ? 1 : 0;
  }
  EXPECT_GT(owned, 50);
  EXPECT_LT(owned, 150);
  EXPECT_FALSE(tables_->AreSharded({tables_->Get("here").Take()}));
  EXPECT_TRUE(tables_->AreSharded({tables_->Get("here").Take(), tables_->Get("whole").Take()}));
}

TEST_F(PlacedTablesTest, AnOwnerThatIsNoneIsRefused) {
  for (const int64_t owner : {-1, 3}) {
    ExpectError(tables_->Open(Config("item"), {PlacementKind::kWhole, owner}, 0),
                StatusCode::kInvalidArgument, {"'item'", "0 to 2", "Received: owner"});
  }
  EXPECT_FALSE(tables_->Get("item").ok());
}

}  // namespace
}  // namespace tfhybrid::placed_tables_test
