#include "core/shm/liveness.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "core/util/mutex.h"
#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

// The paths whose lock this process holds: to the kernel they look free from inside, and closing
// another descriptor of one of them would give its lock up.
class HeldPaths {
 public:
  static HeldPaths& Get() {
    static HeldPaths* const paths = new HeldPaths();
    return *paths;
  }
  // False if the path is held already.
  bool Add(const std::string& path) {
    const MutexLock guard(mutex_);
    return paths_.insert(path).second;
  }
  void Remove(const std::string& path) {
    const MutexLock guard(mutex_);
    paths_.erase(path);
  }
  bool Contains(const std::string& path) {
    const MutexLock guard(mutex_);
    return paths_.count(path) > 0;
  }

 private:
  Mutex mutex_;
  std::set<std::string> paths_ TFHYBRID_GUARDED_BY(mutex_);
};

// What a process that leaves in order appends to its description.
constexpr char kLeftMark[] = "\nleft";

struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// What the holder, living or dead, wrote; empty where it cannot be read.
// REQUIRES: this process does not hold the lock.
std::string ReadText(const std::string& path) {
  char text[256];
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  const ssize_t length = pread(fd, text, sizeof(text), 0);
  close(fd);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
}

// An error where an open file, or what lies at the path where it could not be opened, is not a
// plain file of this user alone.
Status CheckOwn(int fd, const std::string& path) {
  struct stat info;
  if ((fd < 0 ? lstat(path.c_str(), &info) : fstat(fd, &info)) != 0) return Status::Ok();
  const bool plain = S_ISREG(info.st_mode), closed = (info.st_mode & 077U) == 0;
  if (plain && info.st_uid == geteuid() && closed) return Status::Ok();
  return Status::Error(StatusCode::kSystem, path, " is a file of user ", geteuid(),
                       " that nobody else may open. Received: ", plain ? "a file" : "no plain file",
                       " of user ", info.st_uid, closed ? "" : ", open to others",
                       ". Have it removed, by that user or by root");
}

}  // namespace

LivenessLock::LivenessLock(LivenessLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), owner_(other.owner_) {}

LivenessLock& LivenessLock::operator=(LivenessLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(owner_, other.owner_);
  return *this;
}

Result<LivenessLock> LivenessLock::Acquire(const std::string& path,
                                           const std::string& description) {
  if (!HeldPaths::Get().Add(path)) {
    return Status::Error(StatusCode::kAlreadyExists, path, " is held by this process");
  }
  LivenessLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), path,
                    getpid());
  if (!lock.held()) {
    HeldPaths::Get().Remove(path);
    return Status::Error(StatusCode::kSystem, "Cannot open ", path, ": ", SystemMessage(errno));
  }
  struct flock whole = WholeFile();
  if (fcntl(lock.fd_, F_SETLK, &whole) != 0) {
    lock.Release();
    return Status::Error(StatusCode::kAlreadyExists, path,
                         " is held by a living process: ", DescribeHolder(path));
  }
  const auto length = static_cast<ssize_t>(description.size());
  if (ftruncate(lock.fd_, 0) != 0 ||
      pwrite(lock.fd_, description.data(), description.size(), 0) != length) {
    return Status::Error(StatusCode::kResourceExhausted, "Cannot write ", path, ": ",
                         SystemMessage(errno));
  }
  return lock;
}

void LivenessLock::Release() {
  if (fd_ < 0) return;
  close(std::exchange(fd_, -1));
  HeldPaths::Get().Remove(path_);
}

void LivenessLock::Leave() {
  struct stat info;
  if (fd_ >= 0 && owner_ == getpid() && fstat(fd_, &info) == 0) {
    // Before the lock is free. If it cannot be written the process counts as one that died.
    [[maybe_unused]] const ssize_t written =
        pwrite(fd_, kLeftMark, sizeof(kLeftMark) - 1, info.st_size);
  }
  Release();
}

HolderState StateOfHolder(const std::string& path) {
  if (IsAlive(path)) return HolderState::kLiving;
  const std::string text = ReadText(path);
  if (text.empty()) return HolderState::kLiving;
  return text.find(kLeftMark) == std::string::npos ? HolderState::kDied : HolderState::kLeft;
}

bool IsAlive(const std::string& path) {
  if (HeldPaths::Get().Contains(path)) return true;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  // In doubt (no descriptor left, say) it lives: the dead are declared so, and their tables
  // removed.
  if (fd < 0) return errno != ENOENT;
  struct flock whole = WholeFile();
  const bool held = fcntl(fd, F_GETLK, &whole) != 0 || whole.l_type != F_UNLCK;
  close(fd);
  return held;
}

std::string DescribeHolder(const std::string& path) {
  if (HeldPaths::Get().Contains(path)) return "this process";
  const std::string text = ReadText(path);
  return text.empty() ? "an unknown process" : text.substr(0, text.find(kLeftMark));
}

HostMutex::HostMutex(const std::string& path, int timeout_ms)
    : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)) {
  const int failure = errno;
  status_ = CheckOwn(fd_, path);
  if (status_.ok() && fd_ < 0) {
    status_ =
        Status::Error(StatusCode::kSystem, "Cannot lock ", path, ": ", SystemMessage(failure));
  }
  if (status_.ok()) status_ = Lock(path, timeout_ms);
}

Status HostMutex::Lock(const std::string& path, int timeout_ms) const {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Status::Error(StatusCode::kSystem, "Cannot lock ", path, ": ", SystemMessage(errno));
    }
    if (Clock::now() > deadline) {
      return Status::Error(StatusCode::kDeadlineExceeded, path, " has been held for ", timeout_ms,
                           " ms by process ", ReadText(path),
                           ", which creates or removes a store, or is stopped");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // For whoever waits too long. Nobody relies on it.
  const std::string holder = std::to_string(getpid());
  if (ftruncate(fd_, 0) == 0) (void)!pwrite(fd_, holder.data(), holder.size(), 0);
  return Status::Ok();
}

HostMutex::~HostMutex() {
  if (fd_ < 0) return;
  // Unlocked, not only closed: a child forked meanwhile shares the lock and would keep it.
  flock(fd_, LOCK_UN);
  close(fd_);
}

}  // namespace tfhybrid
