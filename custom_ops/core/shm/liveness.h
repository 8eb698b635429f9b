// Liveness: how one process knows that another one still lives, without asking it.
//
// Each process of a store holds a POSIX record lock on a file of its own. The kernel drops the lock
// with the process, a zombie included, a forked child does not inherit it, and it is seen across
// pid namespaces that share the mount.
//
// CAUTION: a POSIX lock is dropped when its process closes *any* descriptor of the file. So the
// file is opened once per process, never closed before Release(), and the functions below do not
// open what this process holds.
#ifndef TFHYBRID_CORE_SHM_LIVENESS_H_
#define TFHYBRID_CORE_SHM_LIVENESS_H_

#include <sys/types.h>

#include <string>
#include <utility>

#include "core/util/status.h"

namespace tfhybrid {

class LivenessLock {
 public:
  LivenessLock() = default;
  LivenessLock(LivenessLock&& other) noexcept;
  LivenessLock& operator=(LivenessLock&& other) noexcept;
  ~LivenessLock() { Release(); }

  // Creates the file, or opens that of a dead process, and writes `description` ("rank 3, pid 17,
  // host a") into it. Fails with kAlreadyExists while another process holds it.
  static Result<LivenessLock> Acquire(const std::string& path, const std::string& description);

  bool held() const { return fd_ >= 0; }
  void Release();
  // Releases the lock of a process that ends in order, so that StateOfHolder() is kLeft. In a
  // forked child, which holds no lock, only the copy of the descriptor is closed.
  void Leave();

 private:
  LivenessLock(int fd, std::string path, pid_t owner)
      : fd_(fd), path_(std::move(path)), owner_(owner) {}

  int fd_ = -1;
  std::string path_;
  pid_t owner_ = 0;
};

enum class HolderState : int { kLiving = 0, kLeft = 1, kDied = 2 };

// State of the process that locked `path`; kLiving if that cannot be told.
HolderState StateOfHolder(const std::string& path);

// Whether some process holds the lock of `path`; true if that cannot be told.
bool IsAlive(const std::string& path);

// The description that the holder, living or dead, wrote; a placeholder if it cannot be read.
std::string DescribeHolder(const std::string& path);

// Serialises a few steps of all processes of a user on a host (create, reclaim, remove a store): an
// flock, held from construction to destruction. Waits for its turn, kDeadlineExceeded if that does
// not come. The file lies where every user may make one: it must be this user's alone, or others
// could hold the lock for ever.
class HostMutex {
 public:
  explicit HostMutex(const std::string& path, int timeout_ms = 120000);
  ~HostMutex();
  HostMutex(const HostMutex&) = delete;
  HostMutex& operator=(const HostMutex&) = delete;
  const Status& status() const { return status_; }

 private:
  Status Lock(const std::string& path, int timeout_ms) const;

  int fd_ = -1;
  Status status_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_LIVENESS_H_
