// Instead of the C library's mmap: behind each mapped file lies a page that nobody may touch, so
// that a read past the end of a file is a fault and not a read of the next file.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <mutex>
#include <unordered_set>

namespace {

constexpr size_t kPage = 4096;

std::mutex mutex;
std::unordered_set<void*> guarded;  // guarded by mutex

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* Map(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

}  // namespace

extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  if (file < 0 || address != nullptr) return Map(address, bytes, protection, flags, file, offset);
  void* room = Map(nullptr, Pages(bytes) + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return room;
  void* data = Map(room, bytes, protection, flags | MAP_FIXED, file, offset);
  if (data == MAP_FAILED) {
    syscall(SYS_munmap, room, Pages(bytes) + kPage);
    return data;
  }
  const std::lock_guard<std::mutex> guard(mutex);
  guarded.insert(data);
  return data;
}

extern "C" int munmap(void* address, size_t bytes) noexcept {
  const std::lock_guard<std::mutex> guard(mutex);
  if (guarded.erase(address) > 0) bytes = Pages(bytes) + kPage;
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}
