#include "core/shm/directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shm/child_process.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid::directory_test {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

class DirectoryTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.File(name); }
  void Write(const std::string& name) const { std::ofstream(Path(name)) << "text"; }

  TemporaryDirectory directory_;
};

Names Sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(DirectoryTest, AllNamesAreListed) {
  Write("a.table");
  Write(".hidden");
  fs::create_directory(Path("folder"));
  fs::create_symlink("nowhere", Path("link"));
  const auto names = NamesIn(directory_.path());
  ASSERT_OK(names);
  EXPECT_EQ(Names({".hidden", "a.table", "folder", "link"}), Sorted(names.value()));
  EXPECT_EQ(Sorted(names.value()), Sorted(NamesOrNone(directory_.path() + "/")));
  EXPECT_EQ(Names(), NamesOrNone(Path("folder")));
}

TEST_F(DirectoryTest, WhatIsNoDirectoryHasNoNames) {
  Write("file");
  ExpectError(NamesIn(Path("absent")).status(), StatusCode::kNotFound,
              {"Cannot read " + Path("absent"), "No such file or directory"});
  ExpectError(NamesIn(Path("file")).status(), StatusCode::kSystem,
              {"Cannot read " + Path("file"), "Not a directory"});
  EXPECT_EQ(Names(), NamesOrNone(Path("absent")));
  EXPECT_EQ(Names(), NamesOrNone(Path("file")));
}

TEST_F(DirectoryTest, AFileIsRemovedOrIsNotThere) {
  Write("file");
  EXPECT_OK(RemoveFile(Path("file")));
  EXPECT_EQ(Names(), NamesOrNone(directory_.path()));
  EXPECT_OK(RemoveFile(Path("file")));
  fs::create_directories(Path("full/folder"));
  ExpectError(RemoveFile(Path("full")), StatusCode::kSystem,
              {"Cannot remove " + Path("full") + ": Directory not empty"});
}

TEST_F(DirectoryTest, ATreeIsRemovedWithAllThatItHolds) {
  fs::create_directories(Path("tree/a/b/c"));
  fs::create_directory(Path("tree/empty"));
  for (int i = 0; i < 1000; ++i) Write("tree/a/b/" + std::to_string(i));
  Write("tree/.hidden");
  Write("beside");
  EXPECT_OK(RemoveTree(Path("tree")));
  EXPECT_EQ(Names({"beside"}), NamesOrNone(directory_.path()));
  EXPECT_OK(RemoveTree(Path("tree")));
  EXPECT_OK(RemoveTree(Path("beside")));
  EXPECT_EQ(Names(), NamesOrNone(directory_.path()));
}

TEST_F(DirectoryTest, ALinkIsRemovedAndNotWhatItPointsAt) {
  fs::create_directory(Path("kept"));
  Write("kept/file");
  fs::create_directory(Path("tree"));
  fs::create_directory_symlink("../kept", Path("tree/link"));
  fs::create_symlink("nowhere", Path("tree/dangling"));
  fs::create_directory_symlink("kept", Path("link"));
  EXPECT_OK(RemoveTree(Path("tree")));
  EXPECT_OK(RemoveTree(Path("link")));
  EXPECT_EQ(Names({"kept"}), NamesOrNone(directory_.path()));
  EXPECT_EQ(Names({"file"}), NamesOrNone(Path("kept")));
}

// To a user who is not root, for root may do everything.
TEST_F(DirectoryTest, WhatMayNotBeReadIsNamed) {
  fs::create_directories(Path("tree/closed/folder"));
  Write("tree/file");
  chmod(Path("tree/closed").c_str(), 0);
  chmod(directory_.path().c_str(), 0755);
  RunInChild([&] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0) {
      ASSERT_EQ(0, seteuid(kNobody));
    }
    ExpectError(NamesIn(Path("tree/closed")).status(), StatusCode::kSystem,
                {"Cannot read " + Path("tree/closed") + ": Permission denied"});
    ExpectError(RemoveTree(Path("tree/closed")), StatusCode::kSystem,
                {"Cannot remove " + Path("tree/closed") + ": Permission denied"});
  });
  chmod(Path("tree/closed").c_str(), 0700);
  EXPECT_EQ(Names({"closed", "file"}), Sorted(NamesOrNone(Path("tree"))));
}

TEST(FileNameTest, APartOfAPathOrOfAName) {
  EXPECT_EQ("c.d", FileName("/a/b/c.d"));
  EXPECT_EQ("c.d", FileName("c.d"));
  EXPECT_EQ("", FileName("a/"));
  EXPECT_EQ("a.table", Stem("a.table.new"));
  EXPECT_EQ("a", Stem("a"));
  EXPECT_TRUE(HasSuffix("a.table", ".table"));
  EXPECT_FALSE(HasSuffix("a.table.new", ".table"));
  EXPECT_FALSE(HasSuffix("a~table", ".table"));
  EXPECT_FALSE(HasSuffix(".table", ".table"));
  EXPECT_FALSE(HasSuffix("", ".table"));
}

}  // namespace
}  // namespace tfhybrid::directory_test
