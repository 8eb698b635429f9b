#include "shm/stepped_process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace tfhybrid {
namespace {

// Where the child says that it comes to `body`, and that it has left it.
void Stop() { kill(getpid(), SIGSTOP); }

}  // namespace

SteppedProcess::SteppedProcess(const std::function<void()>& prepare,
                               const std::function<void()>& body) {
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(0);
    prepare();
    Stop();
    body();
    if (testing::Test::HasFailure()) _exit(1);
    Stop();
    _exit(0);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  possible_ = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
}

SteppedProcess::~SteppedProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool SteppedProcess::Step() {
  int status = 0;
  EXPECT_EQ(0, ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr));
  EXPECT_EQ(pid_, waitpid(pid_, &status, 0));
  EXPECT_TRUE(WIFSTOPPED(status)) << "the child ended";
  return WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

}  // namespace tfhybrid
