#include "core/shm/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

namespace tfhybrid {
namespace {

// Closes on scope exit: a mapping outlives the descriptor it came from.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

Status SystemError(const std::string& what, const std::string& path, int error) {
  // ELOOP: O_NOFOLLOW met a symbolic link.
  const StatusCode code = error == ENOENT  ? StatusCode::kNotFound
                          : error == ELOOP ? StatusCode::kFailedPrecondition
                                           : StatusCode::kSystem;
  return Status::Error(code, what, " ", path, ": ", std::strerror(error));
}

// The page cache that a memory cgroup counts as used but gives back when asked, shared memory
// excluded.
int64_t PageCacheBytes(const char* memory_stat, const std::string& prefix) {
  std::ifstream file(memory_stat);
  std::string name;
  int64_t bytes = 0, sum = 0;
  while (file >> name >> bytes) {
    if (name == prefix + "active_file" || name == prefix + "inactive_file") sum += bytes;
  }
  return sum;
}

// What a memory cgroup still allows, or the largest number where there is no limit.
int64_t MemoryLimitLeft() {
  struct Files {
    const char* limit;
    const char* usage;
    const char* stat;
    const char* prefix;
  };
  const Files kinds[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat",
       ""},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat", "total_"}};
  for (const Files& files : kinds) {
    int64_t limit = 0, usage = 0;
    // "max" does not parse as a number, which is how the unlimited case falls through.
    if ((std::ifstream(files.limit) >> limit) && (std::ifstream(files.usage) >> usage)) {
      const int64_t needed = std::max<int64_t>(0, usage - PageCacheBytes(files.stat, files.prefix));
      return std::max<int64_t>(0, limit - needed);
    }
  }
  return std::numeric_limits<int64_t>::max();
}

Result<MappedFile> OutOfSpace(const std::string& path, int64_t bytes, const std::string& purpose) {
  const std::string directory = path.substr(0, path.rfind('/'));
  return Status::Error(StatusCode::kResourceExhausted, "No room for ", purpose, ": wanted ", bytes,
                       " bytes in ", directory, ", where ", AvailableBytes(directory),
                       " bytes are left. Make it larger (docker run --shm-size, mount -o "
                       "remount,size=...), or point TFHYBRID_SHM_DIR at a larger tmpfs. The table "
                       "is as it was.");
}

// posix_fallocate in slices: an older kernel gives up a whole request at any signal, and a
// profiler's timer would let no large one through.
int Reserve(int fd, int64_t bytes) {
  constexpr int64_t kSlice = int64_t{1} << 20;
  for (int64_t done = 0; done < bytes;) {
    const int error = posix_fallocate(fd, done, std::min(kSlice, bytes - done));
    if (error == EINTR) continue;
    if (error != 0) return error;
    done += kSlice;
  }
  return 0;
}

Status CheckOwned(int fd, const std::string& path, struct stat* info) {
  if (fstat(fd, info) != 0) return SystemError("Cannot examine", path, errno);
  if (!S_ISREG(info->st_mode) || info->st_uid != geteuid() || (info->st_mode & 077) != 0) {
    return Status::Error(StatusCode::kFailedPrecondition, "Refusing to attach ", path,
                         ": wanted a regular file of user ", geteuid(),
                         " with mode 0600. Received: owner ", info->st_uid, ", mode ", std::oct,
                         info->st_mode & 07777);
  }
  return Status::Ok();
}

}  // namespace

int64_t AvailableBytes(const std::string& directory) {
  struct statvfs info;
  if (statvfs(directory.c_str(), &info) != 0) return 0;
  // A tmpfs mounted without a limit counts no blocks at all.
  if (info.f_blocks == 0) return MemoryLimitLeft();
  const auto free_bytes = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  return std::min(free_bytes, MemoryLimitLeft());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

Result<MappedFile> MappedFile::Create(const std::string& path, int64_t bytes,
                                      const std::string& purpose) {
  if (bytes > AvailableBytes(path.substr(0, path.rfind('/')))) {
    return OutOfSpace(path, bytes, purpose);
  }
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return SystemError("Cannot create", path, errno);
  const int reserved = Reserve(file.get(), bytes);
  if (reserved != 0) {
    unlink(path.c_str());
    if (reserved == ENOSPC || reserved == ENOMEM) return OutOfSpace(path, bytes, purpose);
    return SystemError("Cannot reserve", path, reserved);
  }
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    unlink(path.c_str());
    return SystemError("Cannot map", path, error);
  }
  madvise(data, static_cast<size_t>(bytes), MADV_DONTFORK);
  return MappedFile(static_cast<uint8_t*>(data), bytes);
}

Result<MappedFile> MappedFile::OpenReadOnly(const std::string& path) {
  // O_NONBLOCK: a FIFO of that name must be refused, not waited for.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return SystemError("Cannot open", path, errno);
  struct stat info;
  TFHYBRID_RETURN_IF_ERROR(CheckOwned(file.get(), path, &info));
  if (info.st_size == 0) return Status::Error(StatusCode::kDataLoss, path, " is empty");
  void* data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("Cannot map", path, errno);
  return MappedFile(static_cast<uint8_t*>(data), info.st_size);
}

Result<MappedFile> MappedFile::OpenInput(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return SystemError("Cannot open", path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("Cannot examine", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status::Error(StatusCode::kInvalidArgument, path, " is not a regular file");
  }
  if (info.st_size == 0) return MappedFile();
  void* data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("Cannot map", path, errno);
  madvise(data, static_cast<size_t>(info.st_size), MADV_SEQUENTIAL);
  return MappedFile(static_cast<uint8_t*>(data), info.st_size);
}

}  // namespace tfhybrid
