// GradientMessage: what one rank says about one step: for each table its distinct keys and their
// summed gradients.
//
// A sequence of 64-bit words, so that messages laid end to end by an allgather stay aligned:
//
//     word 0          signature: hash of the tables' names and dims; ranks with another model do
//     not match word 1          words in this message word 2 ...      number of keys, one word per
//     table then            keys, table by table (int64) then            gradients, table by table
//     (float [keys, dim]), padded with zero to a whole word
#ifndef TFHYBRID_CORE_SYNC_GRADIENT_MESSAGE_H_
#define TFHYBRID_CORE_SYNC_GRADIENT_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The tables of a message, in order.
struct MessageSchema {
  std::vector<std::string> tables;
  std::vector<int64_t> dims;

  int64_t Signature() const;
};

// Words of a message with that many keys per table.
int64_t MessageWords(const MessageSchema& schema, Span<const int64_t> key_counts);

// Writes header and counts into `words` (zeroing the padding) and says where keys and gradients go.
// REQUIRES: words.size() == MessageWords(schema, key_counts).
class MessageBuilder {
 public:
  MessageBuilder(const MessageSchema& schema, Span<const int64_t> key_counts, Span<int64_t> words);
  int64_t* keys(int64_t table) const { return keys_[static_cast<size_t>(table)]; }
  float* gradients(int64_t table) const { return gradients_[static_cast<size_t>(table)]; }

 private:
  std::vector<int64_t*> keys_;
  std::vector<float*> gradients_;
};

// A message that was checked; points into the words it was parsed from.
struct GradientMessage {
  std::vector<Span<const int64_t>> keys;
  std::vector<const float*> gradients;
};

// Parses `messages` messages that lie end to end. Distrusts every count.
Result<std::vector<GradientMessage>> ParseMessages(const MessageSchema& schema,
                                                   Span<const int64_t> words, int64_t messages);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SYNC_GRADIENT_MESSAGE_H_
