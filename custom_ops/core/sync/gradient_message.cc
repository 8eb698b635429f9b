#include "core/sync/gradient_message.h"

#include "core/util/hash.h"

namespace tfhybrid {
namespace {

constexpr int64_t kCountsAt = 2;

int64_t FloatWords(int64_t floats) { return (floats + 1) / 2; }

Status Mismatch(int64_t rank, const char* what) {
  return Status::Error(StatusCode::kInvalidArgument, "The gradients of rank ", rank, " ", what,
                       ". Do all ranks build the same model and feed the same features?");
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

int64_t MessageWords(const MessageSchema& schema, Span<const int64_t> key_counts) {
  int64_t words = kCountsAt + key_counts.size();
  int64_t floats = 0;
  for (int64_t table = 0; table < key_counts.size(); ++table) {
    words += key_counts[table];
    floats += key_counts[table] * schema.dims[static_cast<size_t>(table)];
  }
  return words + FloatWords(floats);
}

MessageBuilder::MessageBuilder(const MessageSchema& schema, Span<const int64_t> key_counts,
                               Span<int64_t> words) {
  words[0] = schema.Signature();
  words[1] = words.size();
  words[words.size() - 1] = 0;
  int64_t* keys = words.data() + kCountsAt + key_counts.size();
  for (int64_t table = 0; table < key_counts.size(); ++table) {
    words[kCountsAt + table] = key_counts[table];
    keys_.push_back(keys);
    keys += key_counts[table];
  }
  auto* gradients = reinterpret_cast<float*>(keys);
  for (int64_t table = 0; table < key_counts.size(); ++table) {
    gradients_.push_back(gradients);
    gradients += key_counts[table] * schema.dims[static_cast<size_t>(table)];
  }
}

Result<std::vector<GradientMessage>> ParseMessages(const MessageSchema& schema,
                                                   Span<const int64_t> words, int64_t messages) {
  const auto tables = static_cast<int64_t>(schema.tables.size());
  const int64_t signature = schema.Signature();
  std::vector<GradientMessage> parsed(static_cast<size_t>(messages));
  int64_t at = 0;
  for (int64_t rank = 0; rank < messages; ++rank) {
    const int64_t left = words.size() - at;
    if (left < kCountsAt + tables) return Mismatch(rank, "are cut short");
    const int64_t* message = words.data() + at;
    if (message[0] != signature) return Mismatch(rank, "are for other tables");
    const int64_t* counts = message + kCountsAt;
    for (int64_t table = 0; table < tables; ++table) {
      if (counts[table] < 0 || counts[table] > left) return Mismatch(rank, "are damaged");
    }
    const int64_t size = MessageWords(schema, Span<const int64_t>(counts, tables));
    if (message[1] != size || size > left) return Mismatch(rank, "have the wrong length");
    GradientMessage& out = parsed[static_cast<size_t>(rank)];
    const int64_t* keys = counts + tables;
    for (int64_t table = 0; table < tables; ++table) {
      out.keys.emplace_back(keys, counts[table]);
      keys += counts[table];
    }
    const auto* gradients = reinterpret_cast<const float*>(keys);
    for (int64_t table = 0; table < tables; ++table) {
      out.gradients.push_back(gradients);
      gradients += counts[table] * schema.dims[static_cast<size_t>(table)];
    }
    at += size;
  }
  if (at != words.size()) return Mismatch(messages - 1, "are followed by something else");
  return parsed;
}

}  // namespace tfhybrid
