// TableDigest: one number that says whether two replicas of a table are equal, bit for bit.
//
// The sum, modulo 2^64, of a hash of each row's key, embedding and optimizer state: independent of
// where rows lie and in which order they came, and cheap to compare across hosts.
#ifndef TFHYBRID_CORE_STORE_TABLE_DIGEST_H_
#define TFHYBRID_CORE_STORE_TABLE_DIGEST_H_

#include <cstdint>

#include "core/store/store.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// The sum of the digests of rows that lie one after the other. `histories` may be null.
uint64_t RowsDigest(Span<const int64_t> keys, const float* embeddings, int64_t dim,
                    const float* states, int64_t state_floats, const RowHistory* histories);

// The sum of all rows' digests. State and histories count if this process is the leader. REQUIRES:
// nothing updates the table meanwhile.
Result<uint64_t> TableDigest(OpenTable* table);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_TABLE_DIGEST_H_
