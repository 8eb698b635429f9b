// Record files: the binary file of sparse parameters that the leader loads before the first step.
//
// A header that is skipped, then records of equal size, each with an int64 key and `dim` float32
// values somewhere in it, little-endian. The schema says where (in Python: a NumPy structured
// dtype). Every host loads the file alone.
#ifndef TFHYBRID_CORE_CHECKPOINT_RECORD_FILE_H_
#define TFHYBRID_CORE_CHECKPOINT_RECORD_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "core/store/table_writer.h"
#include "core/util/status.h"

namespace tfhybrid {

// All in bytes.
struct RecordSchema {
  int64_t header_bytes = 0;
  int64_t record_bytes = 0;
  int64_t key_offset = 0;
  int64_t embedding_offset = 0;
};

// Creates a row for every record whose key `keeps` accepts (all if null), with fresh optimizer
// state. Returns the number of rows. Fails with kInvalidArgument if the schema does not fit the
// table, and with kDataLoss if the file is not a whole number of records, an embedding is not
// finite, or there are duplicate keys.
Result<int64_t> LoadRecordFile(const std::string& path, const RecordSchema& schema,
                               TableWriter* table, const ParallelFor& parallel_for,
                               const std::function<bool(int64_t key)>& keeps = nullptr);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_CHECKPOINT_RECORD_FILE_H_
