#include "core/checkpoint/table_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "core/shm/huge_buffer.h"
#include "core/store/table_digest.h"
#include "core/util/crc32c.h"
#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

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
  // One float for all of a row's state is one slot of width 1.
  const int64_t state_width = table.state_floats() == 1 ? 1 : dim;
  const std::string shape_of_state =
      std::to_string(table.state_floats() / state_width) + ',' + std::to_string(state_width);
  std::string header =
      '{' + Tensor("keys", "I64", count, 0, keys) + ',' +
      Tensor("embeddings", "F32", count + ',' + width, keys, embeddings) + ',' +
      Tensor("states", "F32", count + ',' + shape_of_state, keys + embeddings, states);
  if (table.has_history()) {
    const auto bytes = static_cast<int64_t>(sizeof(RowHistory));
    header += ',' + Tensor("history", "U8", count + ',' + std::to_string(bytes),
                           keys + embeddings + states, rows * bytes);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

Status Failed(const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Status::Error(full ? StatusCode::kResourceExhausted : StatusCode::kSystem, "Cannot write ",
                       path, ": ", SystemMessage(error));
}

// Returns 0 or errno. Writing to the disk starts at once, not after everything was handed over.
int WriteAll(int file, const char* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(bytes - done, kPieceBytes);
    const ssize_t written = write(file, data + done, static_cast<size_t>(piece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    sync_file_range(file, done, written, SYNC_FILE_RANGE_WRITE);  // not every file system can
    done += written;
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

// The bytes of a part's file, and what is known of them.
struct Content {
  std::unique_ptr<HugeBuffer> buffer;
  TableFile file;
};

Result<Content> Read(FrozenTable* table, int64_t part) {
  if (part < 0 || part >= table->parts()) {
    return Status::Error(StatusCode::kInvalidArgument, "A table of ", table->table_rows(),
                         " rows has ", table->parts(), " parts. Received: ", part);
  }
  const int64_t rows = table->PartRows(part), dim = table->dim(), state = table->state_floats();
  const std::string header = Header(*table, rows);
  const auto length = static_cast<uint64_t>(header.size());
  const auto start = static_cast<int64_t>(sizeof(length) + header.size());
  const int64_t row_bytes =
      static_cast<int64_t>(sizeof(int64_t) + static_cast<size_t>(dim + state) * sizeof(float) +
                           (table->has_history() ? sizeof(RowHistory) : 0));
  const int64_t bytes = start + rows * row_bytes;
  Content content = {std::make_unique<HugeBuffer>(bytes), {rows, bytes, 0, 0}};
  char* const data = content.buffer->data();
  std::memcpy(data, &length, sizeof(length));
  std::memcpy(data + sizeof(length), header.data(), header.size());
  auto* const keys = reinterpret_cast<int64_t*>(data + start);
  auto* const embeddings = reinterpret_cast<float*>(keys + rows);
  float* const states = embeddings + rows * dim;
  // Copied, because they may not be aligned in the file.
  std::vector<RowHistory> histories(table->has_history() ? static_cast<size_t>(rows) : 0);
  TFHYBRID_RETURN_IF_ERROR(table->Read(part, {keys, embeddings, states, histories.data()}));
  if (!histories.empty()) {
    std::memcpy(states + rows * state, histories.data(), histories.size() * sizeof(RowHistory));
  }
  content.file.digest = RowsDigest(Span<const int64_t>(keys, rows), embeddings, dim, states, state,
                                   histories.empty() ? nullptr : histories.data());
  content.file.crc = Crc32c(data, bytes);
  return content;
}

}  // namespace

Result<TableFile> WriteTableFile(FrozenTable* table, int64_t part, const std::string& path) {
  TFHYBRID_ASSIGN_OR_RETURN(const Content content, Read(table, part));
  TFHYBRID_RETURN_IF_ERROR(WriteNew(path, content.buffer->data(), content.file.bytes));
  return content.file;
}

Result<TableFile> DescribeTableFile(FrozenTable* table, int64_t part) {
  TFHYBRID_ASSIGN_OR_RETURN(const Content content, Read(table, part));
  return content.file;
}

}  // namespace tfhybrid
