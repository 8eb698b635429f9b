#include "tier/failing_calls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace tfhybrid {
namespace {

struct Failing {
  std::atomic<int64_t> left{0};
  std::atomic<int> error{0};

  void Arm(int64_t number, int with) {
    error = with;
    left = number;
  }
  bool Now() { return left.load() > 0 && left.fetch_sub(1) == 1; }
};

Failing reads, writes, reservations;

}  // namespace

void FailRead(int64_t number, int error) { reads.Arm(number, error); }
void FailWrite(int64_t number, int error) { writes.Arm(number, error); }
void FailReservation(int64_t number, int error) { reservations.Arm(number, error); }

}  // namespace tfhybrid

// Instead of those of libc.
extern "C" {

ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  if (tfhybrid::reads.Now()) {
    errno = tfhybrid::reads.error;
    return errno == 0 ? 0 : -1;
  }
  return syscall(SYS_pread64, file, bytes, size, offset);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  if (tfhybrid::writes.Now()) {
    errno = tfhybrid::writes.error;
    return errno == 0 ? 0 : -1;
  }
  return syscall(SYS_pwrite64, file, bytes, size, offset);
}

int posix_fallocate(int file, off_t offset, off_t length) {
  if (tfhybrid::reservations.Now()) return tfhybrid::reservations.error;
  return syscall(SYS_fallocate, file, 0, offset, length) == 0 ? 0 : errno;
}
}
