// RowFile: the records of a table's rows in a file on a disk, a record of one size per row.
//
// A record does not cross a page unless it is longer than one. The file is read and written with
// pread and pwrite and is never mapped: an I/O error on a mapping would be a signal. It has no
// header and no checksums. Whoever uses it keeps the checksum of each record in memory
// (core/store/row_cache.h), so that a record that is stale, torn or misplaced is noticed.
//
// Read() is thread-safe, in any process. Write() is, for different records. One process writes.
#ifndef TFHYBRID_CORE_TIER_ROW_FILE_H_
#define TFHYBRID_CORE_TIER_ROW_FILE_H_

#include <cstdint>
#include <string>

#include "core/util/status.h"

namespace tfhybrid {

class RowFile {
 public:
  RowFile(RowFile&& other) noexcept;
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();

  // A new file that only its owner may open. `record_bytes` is a multiple of 4.
  static Result<RowFile> Create(const std::string& path, int64_t record_bytes);
  // An existing file of this user.
  static Result<RowFile> OpenReadOnly(const std::string& path, int64_t record_bytes);
  static Result<RowFile> OpenWritable(const std::string& path, int64_t record_bytes);

  const std::string& path() const { return path_; }
  int64_t record_bytes() const { return record_bytes_; }
  // Where a record begins.
  int64_t OffsetOf(int64_t record) const;
  // Bytes of a file of that many records.
  int64_t BytesOf(int64_t records) const;

  // Reserves space on the disk for records [first, end), so that writing them cannot find it full.
  Status Reserve(int64_t first, int64_t end, const std::string& purpose) const;
  // Asks the kernel to read a record soon.
  void Fetch(int64_t record) const;
  // Asks the kernel to read the pages of which Write() changes a part.
  void FetchForWrite(int64_t record) const;
  // REQUIRES: the record was written.
  Status Read(int64_t record, void* bytes) const;
  // REQUIRES: space is reserved.
  Status Write(int64_t record, const void* bytes) const;

 private:
  RowFile(std::string path, int file, int64_t record_bytes);
  static Result<RowFile> Open(const std::string& path, int flags, int64_t record_bytes);
  Status Failed(const std::string& what, int64_t record, int error) const;

  std::string path_;
  int file_;
  int64_t record_bytes_;
  int64_t records_per_page_;  // 0 where a record has pages of its own
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_TIER_ROW_FILE_H_
