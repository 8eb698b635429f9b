#include "core/checkpoint/table_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/store/table_digest.h"
#include "core/util/crc32c.h"

namespace tfhybrid {
namespace {

int64_t RowsOfAFile(const FrozenTable& table) { return table.locator().MostChunkRows(); }

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   int64_t begin, int64_t bytes) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + std::to_string(begin) + ',' + std::to_string(begin + bytes) +
         "]}";
}

// The header of `rows` rows, padded with blanks so that what follows is aligned.
std::string Header(const FrozenTable& table, int64_t rows) {
  const int64_t dim = table.dim();
  const int64_t keys = rows * static_cast<int64_t>(sizeof(int64_t));
  const int64_t embeddings = rows * dim * static_cast<int64_t>(sizeof(float));
  const int64_t states = rows * table.state_floats() * static_cast<int64_t>(sizeof(float));
  const std::string count = std::to_string(rows), width = std::to_string(dim);
  const std::string slots = std::to_string(table.state_floats() / dim);
  std::string header =
      '{' + Tensor("keys", "I64", count, 0, keys) + ',' +
      Tensor("embeddings", "F32", count + ',' + width, keys, embeddings) + ',' +
      Tensor("states", "F32", count + ',' + slots + ',' + width, keys + embeddings, states) + '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

Status Failed(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Status::Error(full ? StatusCode::kResourceExhausted : StatusCode::kSystem, "Cannot write ",
                       path, ": ", std::strerror(error));
}

// Returns 0 or errno.
int WriteAll(int file, const char* data, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(file, data, static_cast<size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    data += written;
    bytes -= written;
  }
  return fsync(file) == 0 ? 0 : errno;
}

Status WriteNew(const std::string& path, const char* data, int64_t bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return Failed(path, errno);
  int error = WriteAll(file, data, bytes);
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0) return Status::Ok();
  unlink(path.c_str());
  return Failed(path, error);
}

}  // namespace

int64_t CountTableFiles(const FrozenTable& table) {
  return (table.rows() + RowsOfAFile(table) - 1) / RowsOfAFile(table);
}

Result<TableFile> WriteTableFile(FrozenTable* table, int64_t number, const std::string& path) {
  const int64_t first = number * RowsOfAFile(*table);
  const int64_t rows = std::min(table->rows() - first, RowsOfAFile(*table));
  if (number < 0 || rows <= 0) {
    return Status::Error(StatusCode::kInvalidArgument, "A table of ", table->rows(),
                         " rows has files 0 to ", CountTableFiles(*table) - 1,
                         ". Received: ", number);
  }
  const std::string header = Header(*table, rows);
  const auto length = static_cast<uint64_t>(header.size());
  const int64_t row_bytes = static_cast<int64_t>(
      sizeof(int64_t) + static_cast<size_t>(table->dim() + table->state_floats()) * sizeof(float));
  const int64_t start = static_cast<int64_t>(sizeof(length) + header.size());
  const int64_t bytes = start + rows * row_bytes;
  // As words, so that keys are aligned; not filled with zeros.
  const std::unique_ptr<int64_t[]> buffer(new int64_t[static_cast<size_t>(bytes + 7) / 8]);
  auto* const data = reinterpret_cast<char*>(buffer.get());
  std::memcpy(data, &length, sizeof(length));
  std::memcpy(data + sizeof(length), header.data(), header.size());
  auto* const keys = reinterpret_cast<int64_t*>(data + start);
  auto* const embeddings = reinterpret_cast<float*>(keys + rows);
  float* const states = embeddings + rows * table->dim();
  table->Read(first, rows, keys, embeddings, states);
  TableFile file = {rows, bytes, 0, Crc32c(data, bytes)};
  for (int64_t i = 0; i < rows; ++i) {
    file.digest += RowDigest(keys[i], embeddings + i * table->dim(), table->dim(),
                             states + i * table->state_floats(), table->state_floats());
  }
  TFHYBRID_RETURN_IF_ERROR(WriteNew(path, data, bytes));
  return file;
}

}  // namespace tfhybrid
