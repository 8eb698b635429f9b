#include "core/exchange/row_frames.h"

#include "core/util/row_layout.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

// Floats of an answer, of which a broken peer may ask for more than there is memory.
constexpr int64_t kMaxFloats = int64_t{1} << 31;

}  // namespace

Status CheckRowsOfFrame(int64_t dim, int64_t count) {
  const bool fits = dim > 0 && dim <= kMaxDim && count >= 0 && count <= kMaxFloats / dim;
  if (fits) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "A frame asks for rows of 1 to ", kMaxDim,
                       " floats, ", kMaxFloats, " floats at most. Received: ", count, " rows of ",
                       dim);
}

std::vector<int64_t> ReadWords(const std::vector<AskedKeys>& tables) {
  WordWriter out;
  out.Put(static_cast<int64_t>(tables.size()));
  for (const AskedKeys& asked : tables) {
    out.Put(asked.table, asked.dim, static_cast<int64_t>(asked.min_version), asked.keys.size());
  }
  return out.Take();
}

Result<std::vector<AskedKeys>> ParseRead(Span<const int64_t> words) {
  WordReader in(words);
  int64_t count = 0;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&count));
  std::vector<AskedKeys> tables;
  std::vector<int64_t> sizes;
  for (int64_t t = 0; t < count; ++t) {
    AskedKeys asked;
    int64_t version = 0, keys = 0;
    TFHYBRID_RETURN_IF_ERROR(in.Get(&asked.table, &asked.dim, &version, &keys));
    TFHYBRID_RETURN_IF_ERROR(CheckRowsOfFrame(asked.dim, keys));
    asked.min_version = static_cast<uint64_t>(version);
    tables.push_back(std::move(asked));
    sizes.push_back(keys);
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    TFHYBRID_RETURN_IF_ERROR(in.Get(sizes[t], &tables[t].keys));
  }
  if (in.done()) return tables;
  return Status::Error(StatusCode::kInvalidArgument, "A frame has words that say nothing");
}

std::vector<int64_t> ScanWords(const AskedRows& rows) {
  WordWriter out;
  out.Put(rows.table, rows.dim, rows.first, rows.count);
  return out.Take();
}

Result<AskedRows> ParseScan(Span<const int64_t> words) {
  WordReader in(words);
  AskedRows rows = {};
  TFHYBRID_RETURN_IF_ERROR(in.Get(&rows.table, &rows.dim, &rows.first, &rows.count));
  TFHYBRID_RETURN_IF_ERROR(CheckRowsOfFrame(rows.dim, rows.count));
  if (rows.first >= 0) return rows;
  return Status::Error(StatusCode::kInvalidArgument,
                       "Rows are numbered from 0. Received: ", rows.first);
}

}  // namespace tfhybrid
