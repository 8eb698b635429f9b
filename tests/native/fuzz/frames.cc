// What other processes send to the row service: an error, or keys that lie inside the frame;
// and batches that embedding nodes give each other.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/exchange/batch_keys.h"
#include "core/exchange/connection.h"
#include "core/exchange/pass_frames.h"
#include "core/exchange/row_frames.h"
#include "fuzz/fuzz_input.h"

// Input: { which: uint8 } words: int64[]
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tfhybrid;
  FuzzInput input(data, size);
  const uint8_t which = input.Take<uint8_t>();
  const std::string bytes = input.TakeRest();
  // Not a byte longer, so that the address sanitizer sees whoever reads behind them.
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  if (which % 6 == 0) {
    const Result<std::vector<AskedKeys>> asked = ParseRead(words);
    if (!asked.ok()) return 0;
    std::vector<int64_t> again = ReadWords(asked.value());
    volatile int64_t sum = 0;  // so that all keys are read
    for (const AskedKeys& table : asked.value()) {
      sum = std::accumulate(table.keys.begin(), table.keys.end(), int64_t{sum},
                            [](int64_t a, int64_t b) { return a ^ b; });
      again.insert(again.end(), table.keys.begin(), table.keys.end());
      if (WordsOfRows(table.keys.size(), table.dim) < 0) std::abort();
    }
    if (again.size() != words.size()) std::abort();
  } else if (which % 6 == 1) {
    const Result<AskedRows> asked = ParseScan(words);
    if (asked.ok() && (asked.value().first < 0 || asked.value().count < 0)) std::abort();
  } else if (which % 6 == 2) {
    const Result<AnnouncedKeys> announced = ParseAnnounce(words);
    if (!announced.ok()) return 0;
    std::vector<int64_t> again = AnnounceWords(announced.value());
    again.insert(again.end(), announced.value().keys.begin(), announced.value().keys.end());
    if (again.size() != words.size()) std::abort();
  } else if (which % 6 == 3) {
    const Result<FreshRows> fresh = ParseFresh(words);
    if (!fresh.ok()) return 0;
    const FreshRows& rows = fresh.value();
    volatile float sum = 0.0f;  // so that all of it is read
    for (int64_t i = 0; i < rows.keys.size(); ++i) {
      sum = sum + static_cast<float>(rows.keys[i]) + rows.has_row[i];
      for (int64_t d = 0; d < rows.dim; ++d) sum = sum + rows.rows[i * rows.dim + d];
    }
    if (MakeFresh(rows).words.size != static_cast<int64_t>(words.size())) std::abort();
  } else if (which % 6 == 4) {
    if (FailureFrom(words).ok()) std::abort();
  } else {
    BatchKeys held(0);
    if (!held.PutAll(words).ok()) return 0;
    const std::vector<int64_t> copied = held.Words();
    BatchKeys again(0);
    if (!again.PutAll(copied).ok() || again.Words() != copied) std::abort();
  }
  return 0;
}
