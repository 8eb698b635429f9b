// Preloaded: notes what a process does to the files under one folder, and lets a call of its choice
// fail as a bad disk does, or all from one on, as on a full disk or without descriptors. Paths are
// absolute; calls of libc's own are not seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char watched[PATH_MAX];
static long calls, failing;
static int journal = -1;

enum { BAD_DISK, FULL_DISK, NO_DESCRIPTORS };      // the numbers of Fault in watched_disk.py
enum { ANYTHING = 0, SPACE = 1, DESCRIPTOR = 2 };  // what a call needs
static int fault = BAD_DISK;

// Watches `folder`, from call 1 on; call number `fail` fails, none if it is 0. What changes files
// is appended to the file `journal_path`, unless that is empty.
void disk_calls_watch(const char* folder, long fail, const char* journal_path) {
  pthread_mutex_lock(&mutex);
  snprintf(watched, sizeof(watched), "%s", folder);
  calls = 0;
  failing = fail;
  if (journal >= 0) close(journal);
  journal = *journal_path == 0 ? -1
                               : (int)syscall(SYS_openat, AT_FDCWD, journal_path,
                                              O_WRONLY | O_CREAT | O_APPEND, 0600);
  pthread_mutex_unlock(&mutex);
}

// Chooses how calls fail: on a bad disk, one call of any kind; on a full disk or without
// descriptors, all from one on that need space, or a descriptor. Then these calls alone have
// numbers.
void disk_calls_fault(int kind) { fault = kind; }

// Stops watching; returns the number of calls.
long disk_calls_stop(void) {
  pthread_mutex_lock(&mutex);
  *watched = 0;
  const long made = calls;
  pthread_mutex_unlock(&mutex);
  return made;
}

static void path_of(int folder, const char* name, char* path) {
  *path = 0;
  if (name != NULL && *name == '/') {
    snprintf(path, PATH_MAX, "%s", name);
    return;
  }
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length <= 0) return;
  path[length] = 0;
  if (name != NULL) snprintf(path + length, PATH_MAX - (size_t)length, "/%s", name);
}

static int is_watched(const char* path) {
  const size_t length = strlen(watched);
  return length > 0 && strncmp(path, watched, length) == 0;
}

// Counts a call on a path; -1 with errno where it is to fail.
static int count(const char* path, int needs) {
  static const int errors[] = {EIO, ENOSPC, EMFILE};
  if (!is_watched(path) || (fault != BAD_DISK && (needs & fault) == 0)) return 0;
  pthread_mutex_lock(&mutex);
  ++calls;
  const int fails = failing > 0 && (fault == BAD_DISK ? calls == failing : calls >= failing);
  pthread_mutex_unlock(&mutex);
  if (fails) errno = errors[fault];
  return fails ? -1 : 0;
}

// Returns how many bytes can be written; -1 with errno if none. A disk gets full in midst of a
// write.
static ssize_t room(const char* path, size_t size) {
  if (count(path, SPACE) == 0) return (ssize_t)size;
  return fault == FULL_DISK && calls == failing && size > 1 ? (ssize_t)(size / 2) : -1;
}

static void note(const char* call, const char* path, const char* other, const void* data,
                 long long offset, long long size) {
  if (journal < 0 || !is_watched(path)) return;
  pthread_mutex_lock(&mutex);
  dprintf(journal, "%s\t%s\t%s\t%lld\t%lld\n", call, path, other, offset, size);
  if (size > 0) syscall(SYS_write, journal, data, size);
  pthread_mutex_unlock(&mutex);
}

#define REAL(name) ((__typeof__(name)*)dlsym(RTLD_NEXT, #name))

static int open_in(int folder, const char* name, int flags, mode_t mode) {
  char path[PATH_MAX];
  path_of(folder, name, path);
  struct stat found;
  const int is_new = (flags & O_CREAT) != 0 && fstatat(folder, name, &found, 0) != 0;
  if (count(path, is_new ? SPACE | DESCRIPTOR : DESCRIPTOR) != 0) return -1;
  const int file = (int)syscall(SYS_openat, folder, name, flags, mode);
  if (file >= 0 && is_new) note("create", path, "", NULL, 0, 0);
  if (file >= 0 && !is_new && (flags & O_TRUNC) != 0) note("truncate", path, "", NULL, 0, 0);
  return file;
}

static mode_t mode_of(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                 \
  int name(const char* path, int flags, ...) {     \
    va_list arguments;                             \
    va_start(arguments, flags);                    \
    const mode_t mode = mode_of(flags, arguments); \
    va_end(arguments);                             \
    return open_in(AT_FDCWD, path, flags, mode);   \
  }
#define OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) { \
    va_list arguments;                                     \
    va_start(arguments, flags);                            \
    const mode_t mode = mode_of(flags, arguments);         \
    va_end(arguments);                                     \
    return open_in(folder, path, flags, mode);             \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void* data, size_t size) {
  char path[PATH_MAX];
  path_of(file, NULL, path);
  const ssize_t fitting = room(path, size);
  if (fitting < 0) return -1;
  const long long offset = is_watched(path) ? (long long)lseek(file, 0, SEEK_CUR) : 0;
  const ssize_t written = syscall(SYS_write, file, data, (size_t)fitting);
  if (written > 0) note("write", path, "", data, offset, written);
  return written;
}

ssize_t pwrite64(int file, const void* data, size_t size, off64_t offset) {
  char path[PATH_MAX];
  path_of(file, NULL, path);
  const ssize_t fitting = room(path, size);
  if (fitting < 0) return -1;
  const ssize_t written = syscall(SYS_pwrite64, file, data, (size_t)fitting, offset);
  if (written > 0) note("write", path, "", data, offset, written);
  return written;
}
ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
  return pwrite64(file, data, size, offset);
}

int ftruncate64(int file, off64_t size) {
  char path[PATH_MAX];
  path_of(file, NULL, path);
  return count(path, ANYTHING) != 0 ? -1 : (int)syscall(SYS_ftruncate, file, size);
}
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

ssize_t read(int file, void* data, size_t size) {
  char path[PATH_MAX];
  path_of(file, NULL, path);
  return count(path, ANYTHING) != 0 ? -1 : syscall(SYS_read, file, data, size);
}

static int force(int file, long call) {
  char path[PATH_MAX];
  path_of(file, NULL, path);
  if (count(path, ANYTHING) != 0) return -1;
  const int failed = (int)syscall(call, file);
  if (failed == 0) note("fsync", path, "", NULL, 0, 0);
  return failed;
}
int fsync(int file) { return force(file, SYS_fsync); }
int fdatasync(int file) { return force(file, SYS_fdatasync); }

int mkdir(const char* name, mode_t mode) {
  if (count(name, SPACE) != 0) return -1;
  const int failed = (int)syscall(SYS_mkdirat, AT_FDCWD, name, mode);
  if (failed == 0) note("mkdir", name, "", NULL, 0, 0);
  return failed;
}

static int remove_in(int folder, const char* name, int flags) {
  char path[PATH_MAX];
  path_of(folder, name, path);
  if (count(path, ANYTHING) != 0) return -1;
  const int failed = (int)syscall(SYS_unlinkat, folder, name, flags);
  if (failed == 0) note("unlink", path, "", NULL, 0, 0);
  return failed;
}

int unlink(const char* name) { return remove_in(AT_FDCWD, name, 0); }
int rmdir(const char* name) { return remove_in(AT_FDCWD, name, AT_REMOVEDIR); }
int unlinkat(int folder, const char* name, int flags) { return remove_in(folder, name, flags); }

static int rename_in(const char* from, const char* to, unsigned flags) {
  if (count(from, ANYTHING) != 0) return -1;
  const int failed = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
  if (failed == 0) note(flags == 0 ? "rename" : "exchange", from, to, NULL, 0, 0);
  return failed;
}

int rename(const char* from, const char* to) { return rename_in(from, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  (void)from_folder, (void)to_folder;
  return rename_in(from, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  (void)from_folder, (void)to_folder;
  return rename_in(from, to, flags);
}
