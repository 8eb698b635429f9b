#include "core/store/segment.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "core/util/crc32c.h"

namespace tfhybrid {
namespace {

Status Damaged(const std::string& path, const char* what, uint64_t wanted, uint64_t received) {
  return Status::Error(StatusCode::kDataLoss, path, " is damaged: wanted ", what, " ", wanted,
                       ". Received: ", received);
}

Status CheckSegment(const std::string& path, const SegmentIdentity& identity, int64_t min_bytes,
                    const MappedFile& file) {
  if (file.size() < min_bytes) {
    return Damaged(path, "a size of at least", static_cast<uint64_t>(min_bytes),
                   static_cast<uint64_t>(file.size()));
  }
  const auto& header = *reinterpret_cast<const SegmentHeader*>(file.data());
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return Status::Error(StatusCode::kDataLoss, path, " is not a segment: its magic is wrong");
  }
  if (header.format != kFormatVersion)
    return Damaged(path, "format", kFormatVersion, header.format);
  const auto kind = static_cast<uint32_t>(identity.kind);
  if (header.kind != kind) return Damaged(path, "kind", kind, header.kind);
  if (header.file_bytes != static_cast<uint64_t>(file.size())) {
    return Damaged(path, "a size of", header.file_bytes, static_cast<uint64_t>(file.size()));
  }
  if (header.token != identity.token) return Damaged(path, "token", identity.token, header.token);
  if (header.ordinal != identity.ordinal) {
    return Damaged(path, "ordinal", identity.ordinal, header.ordinal);
  }
  if (header.uid != geteuid()) return Damaged(path, "owner", geteuid(), header.uid);
  if (identity.kind != SegmentKind::kTable && header.crc != SegmentCrc(header, nullptr, 0)) {
    return Damaged(path, "checksum", SegmentCrc(header, nullptr, 0), header.crc);
  }
  return Status::Ok();
}

}  // namespace

std::string PercentEncode(const std::string& name) {
  std::string encoded;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool kept = byte >= 0x80 || (byte >= '0' && byte <= '9') ||
                      ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') || c == '-' || c == '_';
    if (kept) {
      encoded += c;
    } else {
      char escaped[4];
      std::snprintf(escaped, sizeof(escaped), "%%%02X", byte);
      encoded += escaped;
    }
  }
  return encoded;
}

TablePaths::TablePaths(const std::string& directory, const std::string& table_name)
    : prefix_(directory + "/" + PercentEncode(table_name)) {}

bool TablePaths::RemoveChunk(int64_t chunk) const {
  bool removed = false;
  for (const std::string& path : {Rows(chunk), State(chunk), History(chunk)}) {
    removed |= unlink(path.c_str()) == 0;
  }
  return removed;
}

uint32_t SegmentCrc(const SegmentHeader& header, const void* constants, int64_t constants_bytes) {
  SegmentHeader copy = header;
  copy.crc = 0;
  const uint32_t crc = Crc32c(&copy, sizeof(copy));
  return constants_bytes == 0 ? crc : Crc32c(constants, constants_bytes, crc);
}

Result<MappedFile> CreateSegment(const std::string& path, const SegmentIdentity& identity,
                                 int64_t bytes, const std::string& purpose) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            MappedFile::Create(path, RoundUp(bytes, kPageBytes), purpose));
  auto* header = reinterpret_cast<SegmentHeader*>(file.mutable_data());
  std::memcpy(header->magic, kMagic, sizeof(kMagic));
  header->format = kFormatVersion;
  header->kind = static_cast<uint32_t>(identity.kind);
  header->token = identity.token;
  header->file_bytes = static_cast<uint64_t>(file.size());
  header->ordinal = identity.ordinal;
  header->uid = geteuid();
  header->crc = SegmentCrc(*header, nullptr, 0);
  return file;
}

Result<MappedFile> OpenSegment(const std::string& path, const SegmentIdentity& identity,
                               int64_t min_bytes) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenReadOnly(path));
  TFHYBRID_RETURN_IF_ERROR(CheckSegment(path, identity, min_bytes, file));
  return file;
}

Result<MappedFile> OpenSegmentWritable(const std::string& path, const SegmentIdentity& identity,
                                       int64_t min_bytes) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenWritable(path));
  TFHYBRID_RETURN_IF_ERROR(CheckSegment(path, identity, min_bytes, file));
  return file;
}

void SealTable(TableSegment* segment) {
  segment->header.crc = SegmentCrc(segment->header, &segment->shape, sizeof(segment->shape));
}

Status CheckTable(const std::string& path, const TableSegment& segment) {
  const uint32_t crc = SegmentCrc(segment.header, &segment.shape, sizeof(segment.shape));
  if (segment.header.crc != crc) return Damaged(path, "checksum", crc, segment.header.crc);
  const TableShape& shape = segment.shape;
  if (shape.dim == 0 || shape.first_chunk_log2 > shape.chunk_log2 || shape.chunk_log2 >= 40) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: impossible shape");
  }
  if (shape.shard.owners == 0 || shape.shard.owner >= shape.shard.owners) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: impossible owners");
  }
  return ValidatePolicy(shape.policy);
}

Span<IndexSlot> SlotsOf(const MappedFile& file) {
  const auto* segment = reinterpret_cast<const IndexSegment*>(file.data());
  return Span<IndexSlot>(reinterpret_cast<IndexSlot*>(file.mutable_data() + kIndexSlotsOffset),
                         static_cast<int64_t>(segment->slots));
}

int64_t EmbeddingsOffset(int64_t rows) {
  return RoundUp(kPageBytes + rows * static_cast<int64_t>(sizeof(int64_t)), kCacheLine);
}

int64_t RowChunkBytes(int64_t rows, int64_t dim) {
  return RoundUp(EmbeddingsOffset(rows) + rows * dim * static_cast<int64_t>(sizeof(float)),
                 kPageBytes);
}

int64_t StateChunkBytes(int64_t rows, int64_t row_floats) {
  return RoundUp(kPageBytes + rows * row_floats * static_cast<int64_t>(sizeof(float)), kPageBytes);
}

Status CheckChunk(const std::string& path, const MappedFile& file, int64_t rows,
                  int64_t row_floats) {
  const auto* chunk = reinterpret_cast<const ChunkSegment*>(file.data());
  if (chunk->rows != static_cast<uint64_t>(rows)) {
    return Damaged(path, "rows", static_cast<uint64_t>(rows), chunk->rows);
  }
  if (chunk->row_floats != static_cast<uint64_t>(row_floats)) {
    return Damaged(path, "floats in a row", static_cast<uint64_t>(row_floats), chunk->row_floats);
  }
  return Status::Ok();
}

Result<MappedFile> CreateChunk(const std::string& path, const SegmentIdentity& identity,
                               const ChunkShape& shape, const std::string& purpose) {
  // What an attempt without memory has left: no counter names it.
  unlink(path.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            CreateSegment(path, identity, shape.Bytes(identity.kind), purpose));
  auto* header = reinterpret_cast<ChunkSegment*>(file.mutable_data());
  header->rows = static_cast<uint64_t>(shape.rows);
  header->row_floats = static_cast<uint64_t>(shape.row_floats);
  return file;
}

Result<MappedFile> OpenChunkWritable(const std::string& path, const SegmentIdentity& identity,
                                     const ChunkShape& shape) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            OpenSegmentWritable(path, identity, shape.Bytes(identity.kind)));
  TFHYBRID_RETURN_IF_ERROR(CheckChunk(path, file, shape.rows, shape.row_floats));
  return file;
}

}  // namespace tfhybrid
