// Files of a checkpoint: the rows of a frozen table as safetensors.
//
//     uint64 length of the header | header: JSON | keys int64 [n] | embeddings float [n, dim] |
//     states float [n, slots, dim], where the optimizer has state
//
// Each holds as many rows as a full chunk of the table, the last one what is left. Files of one
// table can be written by as many threads.
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
  uint64_t digest;  // of its rows: their sum over the files is the table's (table_digest.h)
  uint32_t crc;     // CRC-32C of the file
};

int64_t CountTableFiles(const FrozenTable& table);

// Writes and syncs file `number`; each once. kResourceExhausted where the disk is full. Leaves no
// file behind that is not complete.
Result<TableFile> WriteTableFile(FrozenTable* table, int64_t number, const std::string& path);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_CHECKPOINT_TABLE_FILE_H_
