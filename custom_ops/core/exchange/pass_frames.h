// What the frames of passes say (core/exchange/connection.h, docs/design/0021-passes.md).
//
//     ANNOUNCE  a table's name and dim, the number of the announcement, and keys that it wants
//     RELEASE   the same, with the number of the last announcement: keys that none up to it wants
//     FRESH     a table's name and dim, its version, the announcement that is answered or 0, the
//               decay of rows and of initial values, keys, a byte for each that has a row, and
//               their rows as they lie, without decay, padded to a word
#ifndef TFHYBRID_CORE_EXCHANGE_PASS_FRAMES_H_
#define TFHYBRID_CORE_EXCHANGE_PASS_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/compute/row_update.h"
#include "core/exchange/connection.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct AnnouncedKeys {
  std::string table;
  int64_t dim;
  int64_t number;  // of the announcement, from 1
  Span<const int64_t> keys;
};

// The words in front of the keys.
std::vector<int64_t> AnnounceWords(const AnnouncedKeys& announced);
// The keys lie in `words` still.
Result<AnnouncedKeys> ParseAnnounce(Span<const int64_t> words);

struct FreshRows {
  std::string table;
  int64_t dim;
  uint64_t version;
  int64_t answers;  // the number of an announcement; 0: sent because an update has changed them
  Decays decays;
  Span<const int64_t> keys;
  const uint8_t* has_row;
  const float* rows;
};

// A frame of so many rows, and where in its words `has_row` and `rows` are to be written.
struct FreshFrame {
  WordBuffer words;
  uint8_t* has_row;
  float* rows;
};
FreshFrame MakeFresh(const FreshRows& fresh);
// Keys and rows lie in `words` still.
Result<FreshRows> ParseFresh(Span<const int64_t> words);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_PASS_FRAMES_H_
