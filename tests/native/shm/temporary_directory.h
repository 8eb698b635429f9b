// A directory of its own on /dev/shm for each test, removed with everything in it.
#ifndef TFHYBRID_TESTS_NATIVE_SHM_TEMPORARY_DIRECTORY_H_
#define TFHYBRID_TESTS_NATIVE_SHM_TEMPORARY_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tfhybrid {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/dev/shm/tfhybrid-test-XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_SHM_TEMPORARY_DIRECTORY_H_
