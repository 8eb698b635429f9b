#include "core/update/gradient_message.h"

#include <algorithm>
#include <cstring>

#include "core/compute/bfloat16.h"
#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr int64_t kHeaderWords = sizeof(MessageHeader) / sizeof(int64_t);

// Words that hold `count` items of `bytes` bytes.
int64_t WordsOf(int64_t count, int64_t bytes) { return (count * bytes + 7) / 8; }

Status Mismatch(int64_t rank, const char* what) {
  return Status::Error(StatusCode::kInvalidArgument, "The gradients of rank ", rank, " ", what,
                       ". Do all ranks build the same model and feed the same features?");
}

// Where the parts of a message lie, in words.
struct Layout {
  Layout(const MessageSchema& schema, Span<const int64_t> key_counts, int64_t form) {
    int64_t key_count = 0, floats = 0;
    for (int64_t table = 0; table < key_counts.size(); ++table) {
      key_count += key_counts[table];
      floats += key_counts[table] * schema.dims[static_cast<size_t>(table)];
    }
    keys = kHeaderWords + 2 * key_counts.size();
    ranks = keys + key_count;
    gradients = ranks + ((form & kOfHost) != 0 ? WordsOf(key_count, sizeof(uint16_t)) : 0);
    words = gradients + WordsOf(floats, (form & kBfloat16) != 0 ? sizeof(uint16_t) : sizeof(float));
  }
  int64_t keys, ranks, gradients, words;
};

// Fills in where each table's part lies. REQUIRES: the sizes are checked.
void Point(const MessageSchema& schema, const int64_t* message, const Layout& layout,
           Span<const int64_t> counts, GradientMessage* out) {
  const int64_t form = out->header.form;
  const int64_t* keys = message + layout.keys;
  const auto* ranks = reinterpret_cast<const uint16_t*>(message + layout.ranks);
  const auto* floats = reinterpret_cast<const float*>(message + layout.gradients);
  const auto* rounded = reinterpret_cast<const uint16_t*>(message + layout.gradients);
  for (int64_t table = 0; table < counts.size(); ++table) {
    const bool narrow = (form & kBfloat16) != 0;
    out->keys.emplace_back(keys, counts[table]);
    out->ranks.push_back((form & kOfHost) != 0 ? ranks : nullptr);
    out->gradients.push_back(narrow ? nullptr : floats);
    out->rounded.push_back(narrow ? rounded : nullptr);
    const int64_t values = counts[table] * schema.dims[static_cast<size_t>(table)];
    keys += counts[table];
    ranks += counts[table];
    floats += narrow ? 0 : values;
    rounded += narrow ? values : 0;
  }
}

// One message at the start of `words`; `rank` is for the error.
Result<GradientMessage> ParseOne(const MessageSchema& schema, int64_t signature,
                                 Span<const int64_t> words, int64_t rank) {
  const auto tables = static_cast<int64_t>(schema.tables.size());
  GradientMessage out;
  if (words.size() < kHeaderWords + 2 * tables) return Mismatch(rank, "are cut short");
  std::memcpy(&out.header, words.data(), sizeof(out.header));
  if (out.header.signature != signature) return Mismatch(rank, "are for other tables");
  const int64_t form = out.header.form;
  if (form < 0 || form > (kOfHost | kBfloat16 | kOfHandles))
    return Mismatch(rank, "are of an unknown form");
  const Span<const int64_t> counts = words.subspan(kHeaderWords, tables);
  for (const int64_t count : counts) {
    if (count < 0 || count > words.size()) return Mismatch(rank, "are damaged");
  }
  const int64_t text_bytes = out.header.text_bytes;
  if (text_bytes < 0 || text_bytes > 8 * words.size() || out.header.samples < 0) {
    return Mismatch(rank, "are damaged");
  }
  const Layout layout(schema, counts, form);
  const int64_t size = layout.words + WordsOf(text_bytes, 1);
  if (out.header.words != size || size > words.size())
    return Mismatch(rank, "have the wrong length");
  const int64_t* room = counts.end();
  out.room.assign(room, room + tables);
  out.failure.assign(reinterpret_cast<const char*>(words.data() + layout.words),
                     static_cast<size_t>(text_bytes));
  Point(schema, words.data(), layout, counts, &out);
  return out;
}

int64_t WidenedForm(const GradientMessage& message) { return message.header.form & ~kBfloat16; }

std::vector<int64_t> CountsOf(const GradientMessage& message) {
  std::vector<int64_t> counts;
  counts.reserve(message.keys.size());
  for (const Span<const int64_t>& keys : message.keys) counts.push_back(keys.size());
  return counts;
}

void WidenOne(const MessageSchema& schema, const GradientMessage& from, Span<int64_t> words) {
  const std::vector<int64_t> counts = CountsOf(from);
  const MessageBuilder to(schema, counts, words, WidenedForm(from));
  const MessageHeader built = *to.header();
  *to.header() = from.header;
  to.header()->words = built.words;
  to.header()->form = built.form;
  for (size_t t = 0; t < counts.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    const int64_t values = counts[t] * schema.dims[t];
    *to.room(table) = from.room[t];
    std::copy(from.keys[t].begin(), from.keys[t].end(), to.keys(table));
    if (from.ranks[t] != nullptr) std::copy_n(from.ranks[t], counts[t], to.ranks(table));
    if (from.rounded[t] != nullptr) {
      FromBfloat16(from.rounded[t], values, to.gradients(table));
    } else {
      std::copy_n(from.gradients[t], values, to.gradients(table));
    }
  }
}

}  // namespace

int64_t MessageSchema::Signature() const {
  uint64_t hash = tables.size();
  for (size_t i = 0; i < tables.size(); ++i) {
    for (const char c : tables[i]) hash = Mix64(hash ^ static_cast<unsigned char>(c));
    hash = Mix64(hash ^ static_cast<uint64_t>(dims[i]));
  }
  return static_cast<int64_t>(hash);
}

int64_t MessageWords(const MessageSchema& schema, Span<const int64_t> key_counts, int64_t form) {
  return Layout(schema, key_counts, form).words;
}

MessageBuilder::MessageBuilder(const MessageSchema& schema, Span<const int64_t> key_counts,
                               Span<int64_t> words, int64_t form)
    : header_(reinterpret_cast<MessageHeader*>(words.data())),
      room_(words.data() + kHeaderWords + key_counts.size()) {
  const Layout layout(schema, key_counts, form);
  *header_ = {};
  header_->event_time = kNoTime;
  header_->signature = schema.Signature();
  header_->words = words.size();
  header_->form = form;
  std::copy(key_counts.begin(), key_counts.end(), words.data() + kHeaderWords);
  std::fill_n(room_, key_counts.size(), 0);
  // The padding; keys and gradients are written over.
  if (layout.gradients > layout.ranks) words[layout.gradients - 1] = 0;
  if (layout.words > layout.gradients) words[layout.words - 1] = 0;
  int64_t* keys = words.data() + layout.keys;
  auto* ranks = reinterpret_cast<uint16_t*>(words.data() + layout.ranks);
  auto* gradients = reinterpret_cast<unsigned char*>(words.data() + layout.gradients);
  const auto bytes =
      static_cast<int64_t>((form & kBfloat16) != 0 ? sizeof(uint16_t) : sizeof(float));
  for (int64_t table = 0; table < key_counts.size(); ++table) {
    keys_.push_back(keys);
    ranks_.push_back((form & kOfHost) != 0 ? ranks : nullptr);
    gradients_.push_back(gradients);
    keys += key_counts[table];
    ranks += key_counts[table];
    gradients += key_counts[table] * schema.dims[static_cast<size_t>(table)] * bytes;
  }
}

std::vector<int64_t> FailureMessage(const MessageSchema& schema, int64_t form,
                                    const std::string& why) {
  const std::vector<int64_t> none(schema.tables.size(), 0);
  const int64_t before = MessageWords(schema, none, form);
  std::vector<int64_t> words(
      static_cast<size_t>(before + WordsOf(static_cast<int64_t>(why.size()), 1)));
  const MessageBuilder message(schema, none, Span<int64_t>(words.data(), before), form);
  message.header()->words = static_cast<int64_t>(words.size());
  message.header()->text_bytes = static_cast<int64_t>(why.size());
  std::memcpy(words.data() + before, why.data(), why.size());
  return words;
}

Result<std::vector<GradientMessage>> ParseMessages(const MessageSchema& schema,
                                                   Span<const int64_t> words, int64_t messages) {
  const int64_t signature = schema.Signature();
  std::vector<GradientMessage> parsed;
  int64_t at = 0;
  for (int64_t rank = 0; rank < messages; ++rank) {
    TFHYBRID_ASSIGN_OR_RETURN(
        GradientMessage one,
        ParseOne(schema, signature, words.subspan(at, words.size() - at), rank));
    at += one.header.words;
    parsed.push_back(std::move(one));
  }
  if (at != words.size()) return Mismatch(messages - 1, "are followed by something else");
  return parsed;
}

Result<std::vector<GradientMessage>> ParseEach(const MessageSchema& schema,
                                               const std::vector<Span<const int64_t>>& messages) {
  const int64_t signature = schema.Signature();
  std::vector<GradientMessage> parsed;
  for (const Span<const int64_t>& words : messages) {
    const auto rank = static_cast<int64_t>(parsed.size());
    TFHYBRID_ASSIGN_OR_RETURN(GradientMessage one, ParseOne(schema, signature, words, rank));
    if (one.header.words != words.size()) return Mismatch(rank, "are followed by something else");
    parsed.push_back(std::move(one));
  }
  return parsed;
}

Status FailureOf(const std::vector<GradientMessage>& messages) {
  for (const GradientMessage& message : messages) {
    if (message.failure.empty()) continue;
    return Status::Error(StatusCode::kFailedPrecondition, message.failure);
  }
  return Status::Ok();
}

std::vector<std::vector<RankGradients>> ByTable(const std::vector<GradientMessage>& messages,
                                                const std::vector<int64_t>& hosts, size_t tables) {
  std::vector<std::vector<RankGradients>> by_table(tables);
  for (size_t t = 0; t < tables; ++t) {
    for (size_t sender = 0; sender < messages.size(); ++sender) {
      const GradientMessage& message = messages[sender];
      by_table[t].push_back(
          {message.keys[t], message.gradients[t], hosts[sender], message.ranks[t]});
    }
  }
  return by_table;
}

int64_t WidenedWords(const MessageSchema& schema, const std::vector<GradientMessage>& messages) {
  int64_t words = 0;
  for (const GradientMessage& message : messages) {
    const std::vector<int64_t> counts = CountsOf(message);
    words += MessageWords(schema, counts, WidenedForm(message));
  }
  return words;
}

void Widen(const MessageSchema& schema, const std::vector<GradientMessage>& messages,
           Span<int64_t> words) {
  int64_t at = 0;
  for (const GradientMessage& message : messages) {
    const std::vector<int64_t> counts = CountsOf(message);
    const int64_t size = MessageWords(schema, counts, WidenedForm(message));
    WidenOne(schema, message, words.subspan(at, size));
    at += size;
  }
}

}  // namespace tfhybrid
