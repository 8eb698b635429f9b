// Files of a checkpoint: the rows of a frozen table as safetensors.
//
//     uint64 length of the header | header: JSON | keys int64 [n] | embeddings float [n, dim] |
//     states float [n, slots, width], where the optimizer has state; width is dim, or 1
//
// Each holds a part of the table (frozen_table.h). Files of one table can be written by as many
// threads.
#ifndef TFHYBRID_CORE_CHECKPOINT_TABLE_FILE_H_
#define TFHYBRID_CORE_CHECKPOINT_TABLE_FILE_H_

#include <cstdint>
#include <string>

#include "core/store/frozen_table.h"
#include "core/util/status.h"

namespace tfhybrid {

struct TableFile {
  int64_t rows;
  int64_t bytes;
  uint64_t digest;  // of its rows (table_digest.h): the sum over a whole table's files is its own
  uint32_t crc;     // CRC-32C of the file
};

// Writes and syncs the file of a part; each part once. kResourceExhausted if the disk is full.
// Never leaves an incomplete file.
Result<TableFile> WriteTableFile(FrozenTable* table, int64_t part, const std::string& path);

// Describes what WriteTableFile would write, if another host's leader writes it.
Result<TableFile> DescribeTableFile(FrozenTable* table, int64_t part);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_CHECKPOINT_TABLE_FILE_H_
