// Segments: mapped files that open with a checked header. Every file is distrusted until its magic,
// format, kind, size, token, owner and checksum are what they should be.
#ifndef TFHYBRID_CORE_STORE_SEGMENT_H_
#define TFHYBRID_CORE_STORE_SEGMENT_H_

#include <cstdint>
#include <string>

#include "core/shm/mapped_file.h"
#include "core/store/key_index.h"
#include "core/store/layout.h"
#include "core/store/row_locator.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The parts of a segment begin at multiples of this.
inline constexpr int64_t kCacheLine = 64;

// The least multiple of `unit` that is not below `bytes`.
inline int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Keeps letters, digits, '-', '_' and what is not ASCII; writes every other byte as %XX.
std::string PercentEncode(const std::string& text);

// The paths of a table's files in a store's directory.
class TablePaths {
 public:
  TablePaths(const std::string& directory, const std::string& table_name);
  std::string Table() const { return prefix_ + ".table"; }
  std::string Index(uint64_t generation) const {
    return prefix_ + ".index." + std::to_string(generation);
  }
  std::string Rows(int64_t chunk) const { return prefix_ + ".rows." + std::to_string(chunk); }
  std::string State(int64_t chunk) const { return prefix_ + ".state." + std::to_string(chunk); }
  std::string History(int64_t chunk) const { return prefix_ + ".history." + std::to_string(chunk); }
  std::string Tier() const { return prefix_ + ".tier"; }
  std::string Cache(uint64_t generation) const {
    return prefix_ + ".cache." + std::to_string(generation);
  }
  // Removes all files of a chunk; returns whether there was one.
  bool RemoveChunk(int64_t chunk) const;

 private:
  std::string prefix_;
};

// What a new segment is, beside its bytes.
struct SegmentIdentity {
  SegmentKind kind;
  uint64_t token;
  uint64_t ordinal;
};

// Creates a segment of whole pages and fills its header. A table's checksum follows with SealTable.
Result<MappedFile> CreateSegment(const std::string& path, const SegmentIdentity& identity,
                                 int64_t bytes, const std::string& purpose);

// Maps a segment for reading and checks its header; kDataLoss where it is not what was expected.
Result<MappedFile> OpenSegment(const std::string& path, const SegmentIdentity& identity,
                               int64_t min_bytes);
// The same for the writer that replaces a dead one.
Result<MappedFile> OpenSegmentWritable(const std::string& path, const SegmentIdentity& identity,
                                       int64_t min_bytes);

// The checksum of a header (with crc = 0) and of what follows it.
uint32_t SegmentCrc(const SegmentHeader& header, const void* constants, int64_t constants_bytes);

// REQUIRES: the segment is a TableSegment whose shape is final.
void SealTable(TableSegment* segment);
Status CheckTable(const std::string& path, const TableSegment& segment);

inline RowLocator LocatorOf(const TableShape& shape) {
  return RowLocator(static_cast<int>(shape.first_chunk_log2), static_cast<int>(shape.chunk_log2));
}

// Returns the slots of an index segment of a table in memory. REQUIRES: CheckIndex()
// (core/store/table_index.h).
Span<IndexSlot> SlotsOf(const MappedFile& file);

// Chunks of rows: keys, then embeddings; or so many floats of state or history each. Sizes are of
// whole pages.
int64_t EmbeddingsOffset(int64_t rows);
int64_t RowChunkBytes(int64_t rows, int64_t dim);
int64_t StateChunkBytes(int64_t rows, int64_t row_floats);
Status CheckChunk(const std::string& path, const MappedFile& file, int64_t rows,
                  int64_t row_floats);

// What a chunk holds, and how much of it.
struct ChunkShape {
  int64_t rows;
  int64_t row_floats;
  int64_t Bytes(SegmentKind kind) const {
    return kind == SegmentKind::kRows ? RowChunkBytes(rows, row_floats)
                                      : StateChunkBytes(rows, row_floats);
  }
};
Result<MappedFile> CreateChunk(const std::string& path, const SegmentIdentity& identity,
                               const ChunkShape& shape, const std::string& purpose);
// For the writer that replaces a dead one.
Result<MappedFile> OpenChunkWritable(const std::string& path, const SegmentIdentity& identity,
                                     const ChunkShape& shape);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_SEGMENT_H_
