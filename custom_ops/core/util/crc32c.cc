#include "core/util/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tfhybrid {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78u;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, int64_t size,
                                                       uint32_t seed) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t crc = ~seed;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto tail = static_cast<uint32_t>(crc);
  for (; size > 0; --size) tail = _mm_crc32_u8(tail, *bytes++);
  return ~tail;
}
#endif

}  // namespace

uint32_t Crc32cPortable(const void* data, int64_t size, uint32_t seed) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint32_t crc = ~seed;
  for (int64_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* data, int64_t size, uint32_t seed) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Crc32cSse42(data, size, seed);
#endif
  return Crc32cPortable(data, size, seed);
}

}  // namespace tfhybrid
