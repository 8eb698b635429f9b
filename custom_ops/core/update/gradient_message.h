// GradientMessage: what one rank, or one host, says about one step: for each table its distinct
// keys and their summed gradients.
//
// A sequence of 64-bit words, so that messages laid end to end by a collective stay aligned:
//
//     MessageHeader
//     number of keys, one word per table
//     room, one word per table: rows that its sender's table takes without growing (of a host)
//     keys, table by table (int64)
//     ranks, table by table: in how many ranks each key occurred (uint16; of a host)
//     gradients, table by table (float or bfloat16 [keys, dim])
//
// ranks and gradients are padded with zero to a whole word. A message that says why there is no
// update has no keys; behind its header and counts lies a text.
#ifndef TFHYBRID_CORE_UPDATE_GRADIENT_MESSAGE_H_
#define TFHYBRID_CORE_UPDATE_GRADIENT_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/compute/rank_gradients.h"
#include "core/compute/row_policy.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The tables of a message, in order.
struct MessageSchema {
  std::vector<std::string> tables;
  std::vector<int64_t> dims;

  int64_t Signature() const;
  bool operator==(const MessageSchema& other) const {
    return tables == other.tables && dims == other.dims;
  }
};

// Bits of MessageHeader::form.
inline constexpr int64_t kOfHost = 1;     // it has `ranks`
inline constexpr int64_t kBfloat16 = 2;   // its gradients are rounded to bfloat16
inline constexpr int64_t kOfHandles = 4;  // its keys are key handles (core/placement/key_handle.h)

struct MessageHeader {
  int64_t signature;   // hash of the tables' names and dims; ranks with another model do not match
  int64_t words;       // in this message
  int64_t form;        // kOfHost | kBfloat16 | kOfHandles
  int64_t samples;     // of the batches that the gradients are of
  int64_t skip;        // not 0: a gradient is not finite, and nobody applies this update
  int64_t room;        // words of messages that its sender takes without growing (of a host)
  int64_t text_bytes;  // not 0: there is no update, and why
  int64_t event_time;  // of its samples, the latest; kNoTime where none is known
};
static_assert(sizeof(MessageHeader) == 64);

// Words of a message with that many keys per table.
int64_t MessageWords(const MessageSchema& schema, Span<const int64_t> key_counts, int64_t form = 0);

// Writes header and counts into `words` (zeroing the padding) and says where keys and gradients go.
// REQUIRES: words.size() == MessageWords(schema, key_counts, form).
class MessageBuilder {
 public:
  MessageBuilder(const MessageSchema& schema, Span<const int64_t> key_counts, Span<int64_t> words,
                 int64_t form = 0);
  MessageHeader* header() const { return header_; }
  int64_t* room(int64_t table) const { return room_ + table; }
  int64_t* keys(int64_t table) const { return keys_[static_cast<size_t>(table)]; }
  uint16_t* ranks(int64_t table) const { return ranks_[static_cast<size_t>(table)]; }
  // REQUIRES: the form says which of the two.
  float* gradients(int64_t table) const {
    return reinterpret_cast<float*>(gradients_[static_cast<size_t>(table)]);
  }
  uint16_t* rounded(int64_t table) const {
    return reinterpret_cast<uint16_t*>(gradients_[static_cast<size_t>(table)]);
  }

 private:
  MessageHeader* header_;
  int64_t* room_;
  std::vector<int64_t*> keys_;
  std::vector<uint16_t*> ranks_;  // of a host
  std::vector<void*> gradients_;
};

// A message that says why there is no update.
std::vector<int64_t> FailureMessage(const MessageSchema& schema, int64_t form,
                                    const std::string& why);

// A message that was checked; points into the words it was parsed from.
struct GradientMessage {
  MessageHeader header = {0, 0, 0, 0, 0, 0, 0, kNoTime};
  std::vector<int64_t> room;
  std::vector<Span<const int64_t>> keys;
  std::vector<const uint16_t*> ranks;   // null where each key is one rank's
  std::vector<const float*> gradients;  // null where they are bfloat16
  std::vector<const uint16_t*> rounded;
  std::string failure;
};

// Parses `messages` messages that lie end to end. Distrusts every count.
Result<std::vector<GradientMessage>> ParseMessages(const MessageSchema& schema,
                                                   Span<const int64_t> words, int64_t messages);

// The same for messages that lie apart.
Result<std::vector<GradientMessage>> ParseEach(const MessageSchema& schema,
                                               const std::vector<Span<const int64_t>>& messages);

// Ok, or why one of the senders has no gradients.
Status FailureOf(const std::vector<GradientMessage>& messages);

// Of each table, what each sender contributes. `hosts` are those of the senders.
std::vector<std::vector<RankGradients>> ByTable(const std::vector<GradientMessage>& messages,
                                                const std::vector<int64_t>& hosts, size_t tables);

// Messages with float gradients, in as many words as WidenedWords() says.
// REQUIRES: none of them is a failure.
int64_t WidenedWords(const MessageSchema& schema, const std::vector<GradientMessage>& messages);
void Widen(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
           Span<int64_t> words);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_GRADIENT_MESSAGE_H_
