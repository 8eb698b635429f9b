#include "core/tier/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDiskPageBytes = 4096;

int64_t FreeBytes(const std::string& directory) {
  struct statvfs info;
  if (statvfs(directory.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace

RowFile::RowFile(std::string path, int file, int64_t record_bytes)
    : path_(std::move(path)),
      file_(file),
      record_bytes_(record_bytes),
      records_per_page_(kDiskPageBytes / record_bytes) {}

RowFile::RowFile(RowFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      record_bytes_(other.record_bytes_),
      records_per_page_(other.records_per_page_) {}

RowFile::~RowFile() {
  if (file_ >= 0) close(file_);
}

Result<RowFile> RowFile::Create(const std::string& path, int64_t record_bytes) {
  return Open(path, O_RDWR | O_CREAT | O_EXCL, record_bytes);
}

Result<RowFile> RowFile::OpenReadOnly(const std::string& path, int64_t record_bytes) {
  return Open(path, O_RDONLY, record_bytes);
}

Result<RowFile> RowFile::OpenWritable(const std::string& path, int64_t record_bytes) {
  return Open(path, O_RDWR, record_bytes);
}

Result<RowFile> RowFile::Open(const std::string& path, int flags, int64_t record_bytes) {
  const int opened = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (opened < 0) {
    return Status::Error(errno == ENOENT ? StatusCode::kNotFound : StatusCode::kSystem,
                         "Cannot open ", path, ": ", SystemMessage(errno));
  }
  RowFile file(path, opened, record_bytes);
  struct stat info;
  if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return Status::Error(StatusCode::kFailedPrecondition, path, " is no file of this user");
  }
  // Rows are met in no order: reading ahead would be in vain.
  posix_fadvise(opened, 0, 0, POSIX_FADV_RANDOM);
  return file;
}

int64_t RowFile::OffsetOf(int64_t record) const {
  if (records_per_page_ > 0) {
    return record / records_per_page_ * kDiskPageBytes + record % records_per_page_ * record_bytes_;
  }
  return record * ((record_bytes_ + kDiskPageBytes - 1) / kDiskPageBytes * kDiskPageBytes);
}

int64_t RowFile::BytesOf(int64_t records) const {
  return records == 0 ? 0
                      : (OffsetOf(records - 1) + record_bytes_ + kDiskPageBytes - 1) /
                            kDiskPageBytes * kDiskPageBytes;
}

Status RowFile::Reserve(int64_t first, int64_t end, const std::string& purpose) const {
  const int64_t begin = OffsetOf(first), bytes = BytesOf(end) - begin;
  if (bytes <= 0) return Status::Ok();
  int error = 0;
  do {
    error = posix_fallocate(file_, begin, bytes);
  } while (error == EINTR);
  if (error == 0) return Status::Ok();
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status::Error(full ? StatusCode::kResourceExhausted : StatusCode::kSystem, "No room for ",
                       purpose, ": wanted ", bytes, " bytes in ", path_, ", where ",
                       FreeBytes(path_.substr(0, path_.rfind('/'))),
                       " bytes are left: ", SystemMessage(error), ". The table is as it was");
}

void RowFile::Fetch(int64_t record) const {
  posix_fadvise(file_, OffsetOf(record), record_bytes_, POSIX_FADV_WILLNEED);
}

void RowFile::FetchForWrite(int64_t record) const {
  if (record_bytes_ % kDiskPageBytes != 0) Fetch(record);
}

Status RowFile::Read(int64_t record, void* bytes) const {
  const int64_t offset = OffsetOf(record);
  for (int64_t done = 0; done < record_bytes_;) {
    const ssize_t read = pread(file_, static_cast<char*>(bytes) + done,
                               static_cast<size_t>(record_bytes_ - done), offset + done);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return Failed("read", record, errno);
    if (read == 0) {
      return Status::Error(StatusCode::kDataLoss, path_, " is cut short: it has no record ",
                           record);
    }
    done += read;
  }
  return Status::Ok();
}

Status RowFile::Write(int64_t record, const void* bytes) const {
  const int64_t offset = OffsetOf(record);
  for (int64_t done = 0; done < record_bytes_;) {
    const ssize_t written = pwrite(file_, static_cast<const char*>(bytes) + done,
                                   static_cast<size_t>(record_bytes_ - done), offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Failed("write", record, written < 0 ? errno : EIO);
    done += written;
  }
  return Status::Ok();
}

Status RowFile::Failed(const std::string& what, int64_t record, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Status::Error(full ? StatusCode::kResourceExhausted : StatusCode::kSystem, "Cannot ", what,
                       " record ", record, " of ", path_, ": ", SystemMessage(error));
}

}  // namespace tfhybrid
