// Record files: an error, or a table that holds what the file says.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/record_file.h"
#include "core/store/table_loader.h"
#include "core/store/table_reader.h"
#include "fuzz/fuzz_input.h"
#include "shm/temporary_directory.h"
#include "store/segment_files.h"

namespace tfhybrid {
namespace {

constexpr int64_t kDim = 2;

// The embedding of every record is the row of its key.
bool Holds(TableReader* reader, const std::string& file, const RecordSchema& schema) {
  for (auto at = static_cast<size_t>(schema.header_bytes); at < file.size();
       at += static_cast<size_t>(schema.record_bytes)) {
    int64_t key;
    std::memcpy(&key, file.data() + at + schema.key_offset, sizeof(key));
    float row[kDim];
    if (!reader->Lookup(Span<const int64_t>(&key, 1), row).ok()) return false;
    if (std::memcmp(row, file.data() + at + schema.embedding_offset, sizeof(row)) != 0)
      return false;
  }
  return true;
}

void LoadOne(FuzzInput input) {
  static const TemporaryDirectory directory;  // removed at exit
  static TableWriter* const writer =
      TableWriter::Create(directory.path(), 1, {"t", kDim, {}, 0}).Take().release();
  static TableReader* const reader = TableReader::Open(directory.path(), 1, "t").Take().release();
  RecordSchema schema;
  schema.header_bytes = input.Take<int8_t>();
  schema.record_bytes = input.Take<int8_t>();
  schema.key_offset = input.Take<int8_t>();
  schema.embedding_offset = input.Take<int8_t>();
  const std::string content = input.TakeRest();
  WriteFile(directory.File("records"), content);
  if (!TableLoader(writer).Clear().ok()) std::abort();
  const Result<int64_t> loaded =
      LoadRecordFile(directory.File("records"), schema, writer, RunInline);
  if (!loaded.ok()) return;
  if (loaded.value() != writer->rows() || !Holds(reader, content, schema)) std::abort();
}

}  // namespace
}  // namespace tfhybrid

// Input: { header_bytes, record_bytes, key_offset, embedding_offset: int8 } file: uint8[]
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tfhybrid::LoadOne(tfhybrid::FuzzInput(data, size));
  return 0;
}
