// The store of a job as a kill leaves it after any instruction of an update.
//
// A killed process leaves in shared memory what its finished instructions wrote. So the leader is
// run instruction by instruction; whenever one has changed the store, a copy of it is recovered.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/shm/mapped_file.h"
#include "core/util/simd.h"
#include "shm/stepped_process.h"
#include "store/segment_files.h"
#include "update/recovery_fixture.h"

namespace tfhybrid::any_instant_test {
namespace {

// The files of a store in shared memory, as they are, and as they were when last looked at.
class WatchedFiles {
 public:
  explicit WatchedFiles(const std::string& directory) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      seen_[name] = ReadFile(entry.path().string());
      if (name.rfind("rank-", 0) == 0) continue;
      mapped_.emplace(name, MappedFile::OpenReadOnly(entry.path().string()).Take());
    }
  }
  const Files& seen() const { return seen_; }

  // Looks again. Whether there was a change.
  bool Look() {
    bool changed = false;
    for (const auto& [name, file] : mapped_) {
      std::string& seen = seen_[name];
      if (std::memcmp(seen.data(), file.data(), seen.size()) == 0) continue;
      seen.assign(reinterpret_cast<const char*>(file.data()), seen.size());
      changed = true;
    }
    return changed;
  }

 private:
  Files seen_;
  std::map<std::string, MappedFile> mapped_;
};

class AnyInstantTest : public RecoveryTest {
 protected:
  // Recovers a copy of the files. Returns the version found.
  uint64_t RecoverCopy(const Files& files, const Models& models) const {
    const TemporaryDirectory elsewhere;
    mkdir(TrainingDirectory(elsewhere.path()).c_str(), 0700);
    WriteFiles(files, TrainingDirectory(elsewhere.path()));
    const auto recovered = RecoverAlone(TrainingStore(elsewhere.path(), 0), RunInline);
    EXPECT_OK(recovered);
    if (!recovered.ok()) return 0;
    const Store& store = *recovered.value();
    const uint64_t version = VersionOf(store, models.before.plan());
    const bool updated = version == models.after.version();
    EXPECT_EQ("", Difference(store, updated ? models.after : models.before, updated));
    return version;
  }

  // Steps through the update that follows.
  void StepThrough(const TrainingPlan& plan, uint64_t version);
};

void AnyInstantTest::StepThrough(const TrainingPlan& plan, uint64_t version) {
#ifdef TFHYBRID_SANITIZED
  GTEST_SKIP() << "a sanitizer makes too many instructions of it";
#endif
  const Models models(plan, version);
  TrainingJob* job = nullptr;  // the child's
  SteppedProcess child(
      [&] {
        job = TrainingJob::Create(plan, directory_.path()).Take().release();
        for (uint64_t v = 1; v <= version; ++v) EXPECT_OK(job->Train(v, RunInline));
      },
      [&] { EXPECT_OK(job->Train(version + 1, RunInline)); });
  if (!child.possible()) GTEST_SKIP() << "needs the right to trace a child";
  WatchedFiles files(Directory());
  int64_t instructions = 0, changes = 0;
  std::map<uint64_t, int64_t> found;
  for (uint64_t last = version; child.Step(); ++instructions) {
    if (!files.Look()) continue;
    SCOPED_TRACE("change " + std::to_string(++changes));
    const uint64_t version = RecoverCopy(files.seen(), models);
    EXPECT_LE(last, version);
    last = version;
    ++found[version];
    if (HasFailure()) return;
  }
  EXPECT_EQ(files.seen().size(), ReadFiles(Directory()).size()) << "of files in the store";
  EXPECT_EQ(version + 1, RecoverCopy(files.seen(), models));
  EXPECT_GT(found[version], 20);
  EXPECT_GT(found[version + 1], 300);
  RecordProperty("instructions", std::to_string(instructions));
  RecordProperty("changes", std::to_string(changes));
}

TEST_F(AnyInstantTest, UpdateIsDoneOrNotAfterEveryInstruction) {
  constexpr uint64_t kVersion = 12;  // whose update adds rows, and neither chunk nor index
  const Models models(SmallPlan(), kVersion);
  for (size_t table = 0; table < models.before.plan().tables.size(); ++table) {
    EXPECT_LT(models.before.rows(table).size(), models.after.rows(table).size());
  }
  StepThrough(SmallPlan(), kVersion);
}

TEST_F(AnyInstantTest, SoIsOneThatAdmitsAndEvicts) {
  constexpr uint64_t kVersion = 12;
  const Models models(ForgettingPlan(), kVersion);
  const auto leaves = [&](size_t table) {
    for (const auto& [key, past] : models.before.policy(table).rows()) {
      if (models.after.policy(table).rows().count(key) == 0) return true;
    }
    return false;
  };
  const auto is_admitted = [&](size_t table) {
    for (const auto& [key, past] : models.before.policy(table).waiting()) {
      if (models.after.policy(table).rows().count(key) != 0) return true;
    }
    return false;
  };
  EXPECT_TRUE(leaves(0) && leaves(1) && leaves(2) && is_admitted(0) && is_admitted(1));
  StepThrough(ForgettingPlan(), kVersion);
}

}  // namespace
}  // namespace tfhybrid::any_instant_test
