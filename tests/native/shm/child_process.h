// Real processes for tests of what happens between them: forked, and killed with SIGKILL.
#ifndef TFHYBRID_TESTS_NATIVE_SHM_CHILD_PROCESS_H_
#define TFHYBRID_TESTS_NATIVE_SHM_CHILD_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <string>

namespace tfhybrid {

// A child that has run `body` by the end of the constructor, and then waits to be killed.
class ChildProcess {
 public:
  // The child shows what it got with EXPECT_*; a failure there is one of the test.
  explicit ChildProcess(const std::function<void()>& body);
  ~ChildProcess() { Kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // SIGKILL; returns when the process is gone.
  void Kill();

 private:
  pid_t pid_ = -1;
};

// Runs `body` in a child to its end. A failed EXPECT_* in it is one of the test.
void RunInChild(const std::function<void()>& body);

// The same for a body that kills its own process now and then (core/util/fault_point.h): whether it
// did. Any other death is a failure of the test.
bool KilledInChild(const std::function<void()>& body);

// As RunInChild, with a tmpfs of the child's own, mounted with `options` ("size=1m"), over
// `directory`. Returns why this cannot be done here (not root, most often), or nothing.
std::string RunOnOwnTmpfs(const std::string& directory, const std::string& options,
                          const std::function<void()>& body);

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_SHM_CHILD_PROCESS_H_
