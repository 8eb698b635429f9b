// Fails a test that starts a thread in a file that the thread sanitizer passes over.
//
// CMakeLists.txt names the files whose tests start threads, themselves or through the core; under
// that sanitizer they alone are compiled and run. A test of another file that begins to start one
// is told to be named there too. Forked children count as well.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <string>

namespace {

// Of this process and of all that it forks.
std::atomic<int>& Started() {
  static void* const shared = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<std::atomic<int>*>(shared);
}

// Whether `file` ends in one of the names in THREADED_FILES, which are separated by spaces.
bool IsNamed(const std::string& file) {
  const std::string names = " " THREADED_FILES " ";
  const size_t native = file.rfind("native/");
  return names.find(" " + file.substr(native + sizeof("native/") - 1) + " ") != std::string::npos;
}

class StartedThreads : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*test*/) override { Started() = 0; }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (Started() == 0 || IsNamed(test.file())) return;
    ADD_FAILURE() << test.file()
                  << " starts threads: name it in tests/native/CMakeLists.txt, so that "
                  << "the thread sanitizer runs it.";
  }
};

// Appended before main(), which is GoogleTest's.
const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new StartedThreads);
  return true;
}();

}  // namespace

// In front of the C library's, for the test's own code and the core's alike.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  ++Started();
  return real(thread, attributes, run, argument);
}
