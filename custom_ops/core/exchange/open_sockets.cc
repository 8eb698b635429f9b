#include "core/exchange/open_sockets.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

struct OpenSockets {
  Mutex mutex;
  std::set<int> sockets TFHYBRID_GUARDED_BY(mutex);
};

// Never destroyed: connections may outlive the statics of this file.
OpenSockets& Open() {
  static OpenSockets* const open = new OpenSockets;
  return *open;
}

// A fork holds the mutex, so that the child finds the set whole; clang cannot follow it from one
// function to the next. The child makes no allocation: another thread of the parent may have held
// the allocator's lock.
void BeforeFork() TFHYBRID_NO_THREAD_SAFETY_ANALYSIS { Open().mutex.lock(); }

void InParent() TFHYBRID_NO_THREAD_SAFETY_ANALYSIS { Open().mutex.unlock(); }

void InChild() TFHYBRID_NO_THREAD_SAFETY_ANALYSIS {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int socket : Open().sockets) {
    if (nowhere < 0 || dup3(nowhere, socket, O_CLOEXEC) < 0) close(socket);
  }
  if (nowhere >= 0) close(nowhere);
  Open().mutex.unlock();
}

}  // namespace

void KeepFromForkedChildren(int socket) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(BeforeFork, InParent, InChild); });
  const MutexLock guard(Open().mutex);
  Open().sockets.insert(socket);
}

void CloseSocket(int socket) {
  const MutexLock guard(Open().mutex);
  Open().sockets.erase(socket);
  close(socket);
}

}  // namespace tfhybrid
