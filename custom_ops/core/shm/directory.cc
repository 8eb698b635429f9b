#include "core/shm/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};
using OpenedDirectory = std::unique_ptr<DIR, DirectoryCloser>;

// Null with errno on failure. `parent` is a descriptor, or AT_FDCWD.
OpenedDirectory OpenDirectory(int parent, const std::string& path, int flags) {
  const int fd = openat(parent, path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
  if (fd < 0) return nullptr;
  OpenedDirectory directory(fdopendir(fd));
  if (directory == nullptr) close(fd);
  return directory;
}

// Returns 0, or the errno that ended it.
int AddNames(DIR* directory, std::vector<std::string>* names) {
  for (;;) {
    errno = 0;
    // Of threads that share no stream, as here, glibc's may be called by several at once.
    const dirent* const entry = readdir(directory);  // NOLINT(concurrency-mt-unsafe)
    if (entry == nullptr) return errno;
    std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(std::move(name));
  }
}

int Unlink(int parent, const std::string& name, int flags) {
  return unlinkat(parent, name.c_str(), flags) == 0 || errno == ENOENT ? 0 : errno;
}

// Each directory is reached through its open parent: nobody can put a link in its place meanwhile.
int RemoveEntry(int parent, const std::string& name) {
  const OpenedDirectory directory = OpenDirectory(parent, name, O_NOFOLLOW);
  if (directory == nullptr) {
    // Of something else; POSIX and Linux differ about a symbolic link.
    if (errno == ENOTDIR || errno == ELOOP) return Unlink(parent, name, 0);
    return errno == ENOENT ? 0 : errno;
  }
  std::vector<std::string> names;
  int error = AddNames(directory.get(), &names);
  for (size_t i = 0; error == 0 && i < names.size(); ++i) {
    error = RemoveEntry(dirfd(directory.get()), names[i]);
  }
  return error != 0 ? error : Unlink(parent, name, AT_REMOVEDIR);
}

Status RemovalStatus(const std::string& path, int error) {
  if (error == 0) return Status::Ok();
  return Status::Error(StatusCode::kSystem, "Cannot remove ", path, ": ", SystemMessage(error));
}

}  // namespace

Result<std::vector<std::string>> NamesIn(const std::string& directory) {
  const OpenedDirectory opened = OpenDirectory(AT_FDCWD, directory, 0);
  std::vector<std::string> names;
  const int error = opened == nullptr ? errno : AddNames(opened.get(), &names);
  if (error == 0) return names;
  return Status::Error(error == ENOENT ? StatusCode::kNotFound : StatusCode::kSystem,
                       "Cannot read ", directory, ": ", SystemMessage(error));
}

std::vector<std::string> NamesOrNone(const std::string& directory) {
  Result<std::vector<std::string>> names = NamesIn(directory);
  return names.ok() ? names.Take() : std::vector<std::string>();
}

Status RemoveFile(const std::string& path) {
  const bool gone = std::remove(path.c_str()) == 0 || errno == ENOENT;
  return RemovalStatus(path, gone ? 0 : errno);
}

Status RemoveTree(const std::string& path) {
  return RemovalStatus(path, RemoveEntry(AT_FDCWD, path));
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string Stem(const std::string& name) { return name.substr(0, name.rfind('.')); }

bool HasSuffix(const std::string& name, const std::string& suffix) {
  return name.size() > suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

}  // namespace tfhybrid
