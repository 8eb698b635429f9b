// CRC-32C (Castagnoli), the checksum of files and segment headers.
//
// Thread-safe: no state.
#ifndef TFHYBRID_CORE_UTIL_CRC32C_H_
#define TFHYBRID_CORE_UTIL_CRC32C_H_

#include <cstdint>

namespace tfhybrid {

// The checksum of `size` bytes. With the checksum of what came before as `seed`, the checksum of
// both: Crc32c(b, nb, Crc32c(a, na)) is that of a followed by b. Uses the processor's instruction
// where there is one.
uint32_t Crc32c(const void* data, int64_t size, uint32_t seed = 0);

// The same by a table, on any processor.
uint32_t Crc32cPortable(const void* data, int64_t size, uint32_t seed = 0);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_CRC32C_H_
