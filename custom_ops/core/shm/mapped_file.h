// MappedFile: one memory-mapped file, owned. Nothing else in the core calls mmap.
//
// Creating reserves every byte before the mapping is used (posix_fallocate), so a full tmpfs is a
// Status here and never a SIGBUS later. A writable mapping is not inherited by forked children
// (MADV_DONTFORK): what a child destroys it leaves alone, because something else may lie there by
// then. No descriptor stays open. Files of at least 2 MiB get huge pages from kernels that can
// give them. Files are created 0600 with O_EXCL, and opened only if they are regular files of this
// user that nobody else may touch.
//
// Movable, not copyable. The destructor unmaps and never unlinks: the owner of the path removes the
// file. Thread-safe once constructed; the rules for the bytes are those of their layout.
#ifndef TFHYBRID_CORE_SHM_MAPPED_FILE_H_
#define TFHYBRID_CORE_SHM_MAPPED_FILE_H_

#include <cstdint>
#include <string>

#include "core/util/status.h"

namespace tfhybrid {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Creates `path` with `bytes` reserved bytes of zero, mapped for reading and writing. `purpose`
  // names the thing in the error ("table 'item', rows 512 to 1024"). On failure no file is left
  // behind.
  static Result<MappedFile> Create(const std::string& path, int64_t bytes,
                                   const std::string& purpose);

  // Maps an existing file of this user's store for reading only.
  static Result<MappedFile> OpenReadOnly(const std::string& path);

  // Maps an existing file of this user's store for reading and writing, as its new and only writer.
  static Result<MappedFile> OpenWritable(const std::string& path);

  // Maps any readable file, whoever owns it, to be read once from front to back: data of a
  // user.
  static Result<MappedFile> OpenInput(const std::string& path);

  bool mapped() const { return data_ != nullptr; }
  int64_t size() const { return size_; }
  const uint8_t* data() const { return data_; }
  // REQUIRES: made by Create() or OpenWritable().
  uint8_t* mutable_data() const { return data_; }

 private:
  static Result<MappedFile> OpenOwned(const std::string& path, int flags, int protection);
  MappedFile(uint8_t* data, int64_t size);

  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  int process_ = 0;  // the process that has the mapping
};

// Bytes that can still be reserved in `directory`: what its file system has free, or less where the
// memory limit of a container comes first (there a reservation would end in an OOM kill instead of
// an error).
int64_t AvailableBytes(const std::string& directory);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_MAPPED_FILE_H_
