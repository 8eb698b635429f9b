// What the frames of reading say (core/exchange/connection.h).
//
//     READ   number of tables; of each its name, dim, the least version that will do, and number of
//            keys; then the keys, table by table
//     ROWS   the version of each table; then embeddings [keys, dim], each table's padded to a word
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
