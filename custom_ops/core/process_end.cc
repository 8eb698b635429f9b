#include "core/process_end.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <thread>

namespace tfhybrid {
namespace {

// What the handler touches: lock-free, and never destroyed.
static_assert(std::atomic<pid_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
std::atomic<bool> lingering{false};
std::atomic<pid_t> owner{0};  // the process that has the lingering thread
std::atomic<int64_t> milliseconds{0};
sem_t terminated;  // initialized before the handler is in place

void GiveSigtermBack() { signal(SIGTERM, SIG_DFL); }

// Async-signal-safe.
void OnSigterm(int) {
  const int error = errno;
  if (lingering.exchange(true) || owner != getpid()) {
    GiveSigtermBack();
    raise(SIGTERM);  // ends the process when this handler returns
  } else {
    sem_post(&terminated);
  }
  errno = error;
}

void Linger() {
  while (sem_wait(&terminated) != 0) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  GiveSigtermBack();
  kill(getpid(), SIGTERM);
}

std::terminate_handler terminate_before = nullptr;
std::atomic<pid_t> speaker{0};  // the process whose watch may have something to say

// On the thread that failed, of Gloo most often: its connection broke because another rank died.
// Other threads, the watch among them, run meanwhile.
[[noreturn]] void TerminateLater() {
  if (speaker == getpid()) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  terminate_before();
  std::abort();
}

void LingerBeforeTerminate(bool on) {
  if (on && terminate_before == nullptr) terminate_before = std::set_terminate(TerminateLater);
  speaker = on ? getpid() : 0;
}

}  // namespace

void ExitAfter(std::chrono::milliseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    _exit(1);
  }).detach();
}

void LingerAfterSigterm(std::chrono::milliseconds time) {
  milliseconds = time.count();
  LingerBeforeTerminate(time.count() > 0);
  struct sigaction now;
  sigaction(SIGTERM, nullptr, &now);
  if (now.sa_handler != SIG_DFL && now.sa_handler != OnSigterm) return;
  if (time.count() == 0) {
    if (!lingering) GiveSigtermBack();
    return;
  }
  if (owner != getpid()) {
    sem_init(&terminated, 0, 0);
    lingering = false;
    std::thread(Linger).detach();
    owner = getpid();
  }
  struct sigaction handler = {};
  handler.sa_handler = OnSigterm;
  handler.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &handler, nullptr);
}

bool IsLingering() { return lingering; }

}  // namespace tfhybrid
