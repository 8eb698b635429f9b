#include "core/exchange/batch_frames.h"

#include "core/exchange/row_frames.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

constexpr int64_t kRead = 0, kFailed = 1, kMarked = 2;

}  // namespace

std::vector<int64_t> SentWords(const SentBatch& batch) {
  WordWriter out;
  const int64_t state = batch.failed ? kFailed : (batch.marked ? kMarked : kRead);
  out.Put(batch.ticket, state, static_cast<int64_t>(batch.tables.size()));
  for (const SentTable& table : batch.tables) {
    out.Put(table.name, table.dim, static_cast<int64_t>(table.version), table.rows);
  }
  return out.Take();
}

Result<SentBatch> ParseSent(Span<const int64_t> words) {
  WordReader in(words);
  SentBatch batch = {};
  int64_t state = 0, tables = 0;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&batch.ticket, &state, &tables));
  batch.marked = state == kMarked;
  batch.failed = state != kRead && !batch.marked;
  for (int64_t t = 0; t < tables; ++t) {
    SentTable table = {};
    int64_t version = 0;
    TFHYBRID_RETURN_IF_ERROR(in.Get(&table.name, &table.dim, &version, &table.rows));
    TFHYBRID_RETURN_IF_ERROR(CheckRowsOfFrame(table.dim, table.rows));
    table.version = static_cast<uint64_t>(version);
    batch.tables.push_back(std::move(table));
  }
  for (SentTable& table : batch.tables) {
    if (!batch.marked) break;
    Span<const int64_t> marks;
    TFHYBRID_RETURN_IF_ERROR(in.Get(WordsOfMarks(table.rows), &marks));
    table.has_row = reinterpret_cast<const uint8_t*>(marks.data());
  }
  for (SentTable& table : batch.tables) {
    Span<const int64_t> rows;
    TFHYBRID_RETURN_IF_ERROR(in.Get(WordsOfRows(table.rows, table.dim), &rows));
    table.embeddings = reinterpret_cast<const float*>(rows.data());
  }
  if (in.done()) return batch;
  return Status::Error(StatusCode::kInvalidArgument, "A frame has words that say nothing");
}

}  // namespace tfhybrid
