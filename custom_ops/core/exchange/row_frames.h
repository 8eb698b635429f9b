// What the frames of reading say (core/exchange/connection.h).
//
//     READ   number of tables; of each its name, dim, the least version that will do, and number of
//            keys; then the keys, table by table
//     ROWS   the version of each table; of each table, if the request was READ_MARKED, a byte for
//            each key, 1 if it has a row, padded to a word; then embeddings [keys, dim], each
//            table's padded to a word. A key without a row has its initial value
//     SOME_ROWS  the next of these embeddings, before ROWS has the last ones. If rows change
//            meanwhile, ROWS has all of them again
//     SCAN   a table's name and dim, the first row and how many at most
//     ROWS   rows of the table in all, its bytes, rows that follow; their keys, then embeddings,
//     padded
#ifndef TFHYBRID_CORE_EXCHANGE_ROW_FRAMES_H_
#define TFHYBRID_CORE_EXCHANGE_ROW_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// Keys of a table that one owner is asked for.
struct AskedKeys {
  std::string table;
  int64_t dim;
  uint64_t min_version;
  Span<const int64_t> keys;
};

// Returns the number of words that so many rows take in a ROWS frame.
inline int64_t WordsOfRows(int64_t rows, int64_t dim) { return (rows * dim + 1) / 2; }

// Returns the number of words that the marks of so many keys take there.
inline int64_t WordsOfMarks(int64_t keys) {
  constexpr int64_t kInWord = sizeof(int64_t);
  return (keys + kInWord - 1) / kInWord;
}

// Ok if a frame may have this many rows of this width: a broken peer could request more than fits
// in memory.
Status CheckRowsOfFrame(int64_t dim, int64_t count);

// The words of a READ frame in front of the keys.
std::vector<int64_t> ReadWords(const std::vector<AskedKeys>& tables);
// The keys lie in `words` still.
Result<std::vector<AskedKeys>> ParseRead(Span<const int64_t> words);

struct AskedRows {
  std::string table;
  int64_t dim;
  int64_t first, count;
};

std::vector<int64_t> ScanWords(const AskedRows& rows);
Result<AskedRows> ParseScan(Span<const int64_t> words);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_ROW_FRAMES_H_
