// Tables whose rows lie in files on a disk: the segments that they have beside those of every
// table, and how rows are read.
//
//   NAME.tier       TierSegment: where the files lie, and which generation of them holds the rows
//   NAME.cache.G    CacheSegment of generation G: slots, then images of records
//   FILES/rows-tfhybrid-UID-JOB-TOKEN.NAME/rows.G    the records: embedding, then optimizer state
//
// NAME.rows.C holds an *address* for each row where other tables have embeddings, one store of 8
// bytes: the number of the row's record in the upper half, and a *word* in the lower half:
//
//   kCached | slot    the row lies in that slot of the cache, which is newer than the file
//   checksum          the row lies in the file, and its record has these 31 bits of checksum
//
// The file alone is never believed: a record that is torn, stale or another's does not have the
// checksum that the word says. Older programs refuse such a table, by the width of its chunks.
//
// The records of all rows that there is room for are a permutation of their numbers. A row that is
// removed and the last row exchange addresses, so no record is moved: the freed one goes with the
// last number, and the next new row has both. A row that leaves the cache may exchange records with
// one that stays. After a kill, some rows in the cache may have the record of a row in the file; a
// new leader gives them the ones that are left over.
//
// One writer, the leader (core/store/row_cache.h). A row is written to the file before its word
// says so, and a slot is filled before a word names it. A slot counts its fills, so that a reader
// knows whether it held one row all the while.
#ifndef TFHYBRID_CORE_STORE_ROW_TIER_H_
#define TFHYBRID_CORE_STORE_ROW_TIER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/store/segment.h"
#include "core/tier/row_file.h"
#include "core/util/status.h"

namespace tfhybrid {

inline constexpr uint32_t kCached = uint32_t{1} << 31;
inline constexpr int64_t kMaxFilesPath = 1024;
// Floats that an address takes: the row_floats of a chunk of addresses.
inline constexpr int64_t kAddressFloats = 2;

inline uint32_t WordOf(uint64_t address) { return static_cast<uint32_t>(address); }
inline int64_t RecordOf(uint64_t address) { return static_cast<int64_t>(address >> 32); }
inline bool IsCached(uint64_t address) { return (WordOf(address) & kCached) != 0; }
inline int64_t SlotOf(uint64_t address) { return WordOf(address) & ~kCached; }
inline uint64_t AddressOf(int64_t record, uint32_t word) {
  return static_cast<uint64_t>(record) << 32 | word;
}
// The address of the same record with another word.
inline uint64_t WithWord(uint64_t address, uint32_t word) {
  return AddressOf(RecordOf(address), word);
}

// Constant over a table's life.
struct TierShape {
  char files[kMaxFilesPath];  // the directory that the user chose, zero-terminated
  uint64_t cache_bytes;
};

struct TierSegment {
  SegmentHeader header;
  TierShape shape;
  uint64_t shape_crc;
  uint64_t generation;  // atomic: of the files that hold the rows; 0 while there are none
  uint64_t made;        // generations so far
  // The addresses that two rows had before the removal that TableCounters describes.
  uint64_t removed_address;
  uint64_t last_address;
};
static_assert(sizeof(TierSegment) <= kPageBytes);

// The counts are since the generation was made.
struct CacheSegment {
  SegmentHeader header;
  uint64_t slots;
  uint64_t record_floats;
  uint64_t write_backs;  // atomic: batches of them that were begun
  uint64_t hits;         // atomic: rows that an update found in the cache
  uint64_t misses;       // atomic: rows that it read from the file
  uint64_t written;      // atomic: rows that were written to the file
};
static_assert(sizeof(CacheSegment) == 96);

struct CacheSlot {
  uint64_t row_plus_one;  // 0: free
  uint64_t fills;         // atomic
};
static_assert(sizeof(CacheSlot) == 16);

inline int64_t RecordBytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }
// Rows that a cache of so many bytes has room for.
int64_t CacheSlots(int64_t cache_bytes, int64_t record_floats);
int64_t CacheImagesOffset(int64_t slots);
Status CheckCache(const std::string& path, const MappedFile& cache);
inline CacheSlot* CacheSlotsOf(const MappedFile& cache) {
  return reinterpret_cast<CacheSlot*>(cache.mutable_data() + kPageBytes);
}
inline float* CacheImagesOf(const MappedFile& cache) {
  const auto* segment = reinterpret_cast<const CacheSegment*>(cache.data());
  return reinterpret_cast<float*>(cache.mutable_data() +
                                  CacheImagesOffset(static_cast<int64_t>(segment->slots)));
}
// The word of a row that lies in the file as record `number`.
uint32_t ChecksumOf(int64_t number, const float* record, int64_t floats);

// The directory that holds a table's files.
std::string TierDirectory(const std::string& files, const std::string& store_directory,
                          uint64_t token, const std::string& table_name);
inline std::string TierRows(const std::string& tier_directory, uint64_t generation) {
  return tier_directory + "/rows." + std::to_string(generation);
}

// Makes a table's directory and its TierSegment, without a generation.
Result<MappedFile> CreateTier(const std::string& store_directory, uint64_t token,
                              const std::string& table_name, const TierShape& shape);
// For a new leader, or for a reader. Not mapped where the table lies in memory.
Result<MappedFile> OpenTier(const std::string& path, uint64_t token, bool writable);
// Removes the files on disk of all tables of a store.
void RemoveTiers(const std::string& store_directory);

// One generation, to be read by any process. Thread-safe.
class RowTier {
 public:
  static Result<std::shared_ptr<const RowTier>> Open(const TablePaths& paths,
                                                     const std::string& tier_directory,
                                                     uint64_t token, uint64_t generation);

  int64_t record_floats() const { return record_floats_; }
  const CacheSegment& cache() const {
    return *reinterpret_cast<const CacheSegment*>(cache_.data());
  }
  int64_t cache_bytes() const { return cache_.size(); }
  int64_t FileBytes(int64_t rows) const { return file_.BytesOf(rows); }

  // Asks for the bytes of a row that is read soon.
  void Fetch(const uint64_t* address) const;
  // Copies embedding and optimizer state of a row, record_floats() numbers. While the row is being
  // updated, some of them may be old and some new.
  Status Read(const uint64_t* address, float* record) const;

 private:
  RowTier(MappedFile cache, RowFile file);
  bool CopyCached(const uint64_t* address, uint64_t now, float* record) const;

  const MappedFile cache_;
  const RowFile file_;
  const int64_t record_floats_;
  const CacheSlot* const slots_;
  const float* const images_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_TIER_H_
