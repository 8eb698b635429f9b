#include "core/checkpoint/record_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/shm/mapped_file.h"
#include "core/store/table_loader.h"

namespace tfhybrid {
namespace {

constexpr int64_t kBlockRecords = 16384;

Status CheckSchema(const RecordSchema& schema, int64_t embedding_bytes) {
  constexpr auto kKeyBytes = static_cast<int64_t>(sizeof(int64_t));
  const auto inside = [&](int64_t offset, int64_t bytes) {
    return offset >= 0 && schema.record_bytes >= bytes && offset <= schema.record_bytes - bytes;
  };
  // Called only after both are inside, so no sum overflows.
  const auto apart = [&] {
    return schema.key_offset + kKeyBytes <= schema.embedding_offset ||
           schema.embedding_offset + embedding_bytes <= schema.key_offset;
  };
  if (schema.header_bytes >= 0 && inside(schema.key_offset, kKeyBytes) &&
      inside(schema.embedding_offset, embedding_bytes) && apart()) {
    return Status::Ok();
  }
  return Status::Error(StatusCode::kInvalidArgument, "A record must hold a key of 8 bytes and an ",
                       "embedding of ", embedding_bytes,
                       " bytes side by side. Received: record of ", schema.record_bytes,
                       " bytes, key at ", schema.key_offset, ", embedding at ",
                       schema.embedding_offset, ", header of ", schema.header_bytes, " bytes");
}

int64_t KeyOf(const uint8_t* record, const RecordSchema& schema) {
  int64_t key;
  std::memcpy(&key, record + schema.key_offset, sizeof(key));
  return key;
}

Status CheckFinite(const std::string& path, int64_t record, Span<const float> embedding) {
  const auto is_finite = [](float value) { return std::isfinite(value); };
  const float* bad = std::find_if_not(embedding.begin(), embedding.end(), is_finite);
  if (bad == embedding.end()) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, ", record ", record, ": expected ",
                       embedding.size(), " finite numbers of float32. Received: ", *bad,
                       " at index ", bad - embedding.begin());
}

}  // namespace

Result<int64_t> LoadRecordFile(const std::string& path, const RecordSchema& schema,
                               TableWriter* table, const ParallelFor& parallel_for,
                               const std::function<bool(int64_t key)>& keeps) {
  const int64_t dim = table->dim();
  const int64_t embedding_bytes = dim * static_cast<int64_t>(sizeof(float));
  TFHYBRID_RETURN_IF_ERROR(CheckSchema(schema, embedding_bytes));
  TFHYBRID_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::OpenInput(path));
  const int64_t body = file.size() - schema.header_bytes;
  if (body < 0 || body % schema.record_bytes != 0) {
    return Status::Error(StatusCode::kDataLoss, path, " is cut short: wanted a header of ",
                         schema.header_bytes, " bytes and records of ", schema.record_bytes,
                         ". Received: ", file.size(), " bytes");
  }
  const int64_t records = body / schema.record_bytes;
  const uint8_t* record = file.data() + schema.header_bytes;
  int64_t kept = records;
  if (keeps != nullptr) {
    kept = 0;
    for (int64_t i = 0; i < records; ++i) {
      if (keeps(KeyOf(record + i * schema.record_bytes, schema))) ++kept;
    }
  }
  const int64_t rows_before = table->rows();
  TFHYBRID_RETURN_IF_ERROR(table->Reserve(rows_before + kept));
  TableLoader loader(table);
  std::vector<int64_t> keys(static_cast<size_t>(std::min(records, kBlockRecords)));
  std::vector<float> embeddings(keys.size() * static_cast<size_t>(dim));
  for (int64_t first = 0; first < records; first += kBlockRecords) {
    const int64_t end = std::min(first + kBlockRecords, records);
    int64_t count = 0;
    for (int64_t i = first; i < end; ++i, record += schema.record_bytes) {
      const int64_t key = KeyOf(record, schema);
      float* const embedding = &embeddings[static_cast<size_t>(count * dim)];
      std::memcpy(embedding, record + schema.embedding_offset,
                  static_cast<size_t>(embedding_bytes));
      // Also of records that this host does not keep: all hosts refuse the same files.
      TFHYBRID_RETURN_IF_ERROR(CheckFinite(path, i, Span<const float>(embedding, dim)));
      if (keeps != nullptr && !keeps(key)) continue;
      keys[static_cast<size_t>(count)] = key;
      ++count;
    }
    TFHYBRID_RETURN_IF_ERROR(loader.WriteRows(Span<const int64_t>(keys.data(), count),
                                              embeddings.data(), nullptr, nullptr, parallel_for));
  }
  const int64_t created = table->rows() - rows_before;
  if (created != kept) {
    return Status::Error(StatusCode::kDataLoss, path, " holds keys twice, or keys that the table ",
                         "has already: ", kept, " records made ", created, " rows");
  }
  return kept;
}

}  // namespace tfhybrid
