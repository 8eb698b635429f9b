// Pages of a dead leader's rows that another program has zeroed or overwritten.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "store/segment_files.h"
#include "update/recovery_fixture.h"

namespace tfhybrid::damaged_pages_test {
namespace {

class DamagedPagesTest : public RecoveryTest {
 protected:
  void SetUp() override {
    ASSERT_FALSE(KilledAt(0, SmallPlan(), 2, [](TrainingJob* job) {
      for (const char* name : {"adagrad", "adam"}) {
        TableWriter* const writer = job->store()->Find(name)->writer.get();
        const std::vector<int64_t> keys = KeysBetween(1000, 1600);
        const auto floats = static_cast<size_t>(writer->dim()) * keys.size();
        EXPECT_OK(WriteRows(writer, keys, std::vector<float>(floats, 0.5f)));
      }
    }));
    files_ = ReadFiles(Directory());
  }

  // Replaces each page that is not empty by itself; returns how many there were.
  int Damage(const std::string& file, const std::string& page) const {
    int damaged = 0;
    for (size_t at = kPageBytes; at < files_.at(file).size(); at += kPageBytes) {
      Files files = files_;
      std::string& content = files[file];
      if (Trimmed(content.substr(at, kPageBytes)).empty()) continue;
      SCOPED_TRACE(file + ", page at " + std::to_string(at));
      content.replace(at, kPageBytes, page);
      std::filesystem::remove_all(Directory());
      mkdir(Directory().c_str(), 0700);
      WriteFiles(files, Directory());
      ExpectError(Recover().status(), StatusCode::kDataLoss, {"is damaged"});
      ++damaged;
    }
    return damaged;
  }

  Files files_;
};

TEST_F(DamagedPagesTest, ZeroedOnesAreNoticed) {
  const std::string zeros(kPageBytes, 0);
  EXPECT_GE(Damage("adam.rows.0", zeros) + Damage("adam.rows.1", zeros), 4);
  EXPECT_GE(Damage("adagrad.rows.0", zeros), 1);
  EXPECT_GE(Damage("adagrad.state.0", zeros), 1);
}

TEST_F(DamagedPagesTest, ForeignOnesAreNoticed) {
  std::mt19937 random(1);
  std::string noise(kPageBytes, 0);
  for (char& byte : noise) byte = static_cast<char>(random());
  EXPECT_GE(Damage("adam.rows.0", noise) + Damage("adam.rows.1", noise), 4);
  EXPECT_GE(Damage("adagrad.state.0", noise), 1);
}

}  // namespace
}  // namespace tfhybrid::damaged_pages_test
