// What an owner sends of a batch that a data node has split, unasked: the frame SENT
// (core/exchange/connection.h).
//
//     ticket, 1 where the rows could not be read or 2 with marks, number of tables; of each its
//     name, dim, version and number of rows; with marks, of each a byte for each row, padded to a
//     word; then the rows [rows, dim], each table's padded to a word
//
// A mark is 1 for a key that has a row, 0 for an initial value. Batches for evaluation have marks.
// Rows are in the order of the owner's keys of the batch, by which key handles count them.
#ifndef TFHYBRID_CORE_EXCHANGE_BATCH_FRAMES_H_
#define TFHYBRID_CORE_EXCHANGE_BATCH_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct SentTable {
  std::string name;
  int64_t dim;
  uint64_t version;
  int64_t rows;
  const float* embeddings;           // [rows, dim]; of what was parsed
  const uint8_t* has_row = nullptr;  // likewise; null without marks
};

struct SentBatch {
  int64_t ticket;
  bool failed;
  std::vector<SentTable> tables;
  bool marked = false;
};

// The words in front of the rows, and of the marks.
std::vector<int64_t> SentWords(const SentBatch& batch);
// The rows lie in `words` still.
Result<SentBatch> ParseSent(Span<const int64_t> words);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_BATCH_FRAMES_H_
