#include "shm/child_process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace tfhybrid {
namespace {

constexpr int kFailed = 1;
constexpr int kCannotMount = 77;

// Runs `body` in the child that this forks; the child never returns from here.
pid_t Fork(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int code = body();
  std::fflush(nullptr);
  _exit(code);
}

int RunExpecting(const std::function<void()>& body) {
  body();
  return testing::Test::HasFailure() ? kFailed : 0;
}

int ExitCodeOf(pid_t pid) {
  int status = 0;
  EXPECT_EQ(pid, waitpid(pid, &status, 0));
  EXPECT_TRUE(WIFEXITED(status)) << "the child ended with signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
}

}  // namespace

ChildProcess::ChildProcess(const std::function<void()>& body) {
  int ready[2];
  if (pipe(ready) != 0) std::abort();
  pid_ = Fork([&] {
    const char code = static_cast<char>(RunExpecting(body));
    std::fflush(nullptr);
    if (write(ready[1], &code, 1) == 1) {
      while (true) pause();
    }
    return kFailed;
  });
  char code = kFailed;
  EXPECT_EQ(1, read(ready[0], &code, 1));
  EXPECT_EQ(0, code) << "what the child expected did not come";
  close(ready[0]);
  close(ready[1]);
}

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RunInChild(const std::function<void()>& body) {
  EXPECT_EQ(0, ExitCodeOf(Fork([&] { return RunExpecting(body); })))
      << "what the child expected did not come";
}

bool KilledInChild(const std::function<void()>& body) {
  const pid_t pid = Fork([&] { return RunExpecting(body); });
  int status = 0;
  EXPECT_EQ(pid, waitpid(pid, &status, 0));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
  EXPECT_TRUE(WIFEXITED(status)) << "the child ended with signal " << WTERMSIG(status);
  EXPECT_EQ(0, WEXITSTATUS(status)) << "what the child expected did not come";
  return false;
}

std::string RunOnOwnTmpfs(const std::string& directory, const std::string& options,
                          const std::function<void()>& body) {
  const pid_t pid = Fork([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      return kCannotMount;
    }
    return RunExpecting(body);
  });
  const int code = ExitCodeOf(pid);
  if (code == kCannotMount) return "needs the right to mount a tmpfs on " + directory + " (root)";
  EXPECT_EQ(0, code) << "what the child expected did not come";
  return "";
}

}  // namespace tfhybrid
