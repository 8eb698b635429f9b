// Gradient messages as the leader gets them: an error, or messages that lie inside their words, and
// that can be widened.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/update/gradient_message.h"
#include "fuzz/fuzz_input.h"

// Input: { messages: uint8 } words: int64[]
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tfhybrid;
  const MessageSchema schema = {{"user", "item"}, {3, 2}};
  FuzzInput input(data, size);
  const int64_t messages = input.Take<uint8_t>() % 8;
  const std::string bytes = input.TakeRest();
  // Not a byte longer, so that the address sanitizer sees whoever reads behind them.
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  const auto parsed = ParseMessages(schema, words, messages);
  if (!parsed.ok() || !FailureOf(parsed.value()).ok()) return 0;
  std::vector<int64_t> widened(static_cast<size_t>(WidenedWords(schema, parsed.value())));
  Widen(schema, parsed.value(), widened);
  const auto read = ParseMessages(schema, widened, messages);
  if (!read.ok()) std::abort();
  volatile double sum = 0;  // so that everything is read
  for (const GradientMessage& message : read.value()) {
    for (size_t table = 0; table < schema.tables.size(); ++table) {
      const Span<const int64_t> keys = message.keys[table];
      for (const int64_t key : keys) sum = sum + static_cast<double>(key);
      const uint16_t* ranks = message.ranks[table];
      if (ranks != nullptr) sum = std::accumulate(ranks, ranks + keys.size(), sum);
      const float* gradients = message.gradients[table];
      sum = std::accumulate(gradients, gradients + keys.size() * schema.dims[table], sum);
    }
  }
  return 0;
}
