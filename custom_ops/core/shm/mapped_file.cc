#include "core/shm/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <utility>

#include "core/shm/huge_buffer.h"
#include "core/shm/numa.h"
#include "core/util/system_message.h"

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
  return Status::Error(code, what, " ", path, ": ", SystemMessage(error));
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

// Linux 6.1; older headers do not know it, and an older kernel refuses it.
#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;
#endif
constexpr size_t kPage = 4096;

// Maps a file at an address where the kernel can map huge pages, if it is large enough for one.
// Returns MAP_FAILED with errno.
void* Map(int fd, int64_t bytes, int protection) {
  const auto size = static_cast<size_t>(bytes);
  if (size < kHugePage) return mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  // Room for the file at any alignment; what sticks out is given back.
  void* room = mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return room;
  auto* start = static_cast<uint8_t*>(room);
  const size_t pages = (size + kPage - 1) / kPage * kPage;
  uint8_t* aligned =
      start + (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  void* data = mmap(aligned, size, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  if (data == MAP_FAILED) {
    munmap(room, size + kHugePage);
  } else {
    if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
    const size_t behind = static_cast<size_t>(start + size + kHugePage - (aligned + pages));
    if (behind > 0) munmap(aligned + pages, behind / kPage * kPage);
  }
  errno = error;
  return data;
}

// Asks the kernel for huge pages: random rows on pages of 4 kB cost a page walk each. A kernel that
// cannot leaves them as they are.
void Collapse(void* data, int64_t bytes) { madvise(data, static_cast<size_t>(bytes), kCollapse); }

// Makes huge pages of an empty file that is mapped at `data`. The kernel needs one small page in
// each. If the file had all its small pages, the kernel would copy each of them: 0.21 to 0.61 s for
// 256 MiB instead of 0.02 s. Reserve() follows, and reserves what could not become a huge page.
void MakeHugePages(int fd, void* data, int64_t bytes) {
  const auto page = static_cast<int64_t>(kPage);
  const auto huge_page = static_cast<int64_t>(kHugePage);
  if (bytes < huge_page || ftruncate(fd, bytes) != 0) return;
  for (int64_t number = 0; number < bytes / huge_page; ++number) {
    // Not the first page of each: where memory is interleaved, all of those lie on one node.
    const int64_t seed = number % (huge_page / page) * page;
    if (posix_fallocate(fd, number * huge_page + seed, page) != 0) return;
  }
  Collapse(data, bytes);
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

MappedFile::MappedFile(uint8_t* data, int64_t size)
    : data_(data), size_(size), process_(getpid()) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      process_(other.process_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(process_, other.process_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr && process_ == getpid()) munmap(data_, static_cast<size_t>(size_));
}

Result<MappedFile> MappedFile::Create(const std::string& path, int64_t bytes,
                                      const std::string& purpose) {
  if (bytes > AvailableBytes(path.substr(0, path.rfind('/')))) {
    return OutOfSpace(path, bytes, purpose);
  }
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return SystemError("Cannot create", path, errno);
  void* data = Map(file.get(), bytes, PROT_READ | PROT_WRITE);
  if (data == MAP_FAILED) {
    const int error = errno;
    unlink(path.c_str());
    return SystemError("Cannot map", path, error);
  }
  MappedFile mapped(static_cast<uint8_t*>(data), bytes);
  // Before pages are reserved, for they do not move later.
  Interleave(data, bytes);
  MakeHugePages(file.get(), data, bytes);
  const int reserved = Reserve(file.get(), bytes);
  if (reserved != 0) {
    unlink(path.c_str());
    if (reserved == ENOSPC || reserved == ENOMEM) return OutOfSpace(path, bytes, purpose);
    return SystemError("Cannot reserve", path, reserved);
  }
  madvise(data, static_cast<size_t>(bytes), MADV_DONTFORK);
  return mapped;
}

Result<MappedFile> MappedFile::OpenOwned(const std::string& path, int flags, int protection) {
  // O_NONBLOCK: a FIFO of that name must be refused, not waited for.
  const Descriptor file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return SystemError("Cannot open", path, errno);
  struct stat info;
  TFHYBRID_RETURN_IF_ERROR(CheckOwned(file.get(), path, &info));
  if (info.st_size == 0) return Status::Error(StatusCode::kDataLoss, path, " is empty");
  void* data = Map(file.get(), info.st_size, protection);
  if (data == MAP_FAILED) return SystemError("Cannot map", path, errno);
  return MappedFile(static_cast<uint8_t*>(data), info.st_size);
}

Result<MappedFile> MappedFile::OpenReadOnly(const std::string& path) {
  return OpenOwned(path, O_RDONLY, PROT_READ);
}

Result<MappedFile> MappedFile::OpenWritable(const std::string& path) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file, OpenOwned(path, O_RDWR, PROT_READ | PROT_WRITE));
  madvise(file.data_, static_cast<size_t>(file.size_), MADV_DONTFORK);
  Collapse(file.data_, file.size_);
  return file;
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
