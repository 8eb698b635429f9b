#include "core/passes/pass_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/shm/wait_word.h"
#include "core/store/segment.h"
#include "core/util/row_layout.h"

namespace tfhybrid {
namespace {

// Where the parts of a table lie, from its keys on.
struct Parts {
  int64_t last, has_row, rows, end;
};

Parts PartsOf(int64_t keys, int64_t dim) {
  Parts parts = {};
  parts.last = keys * int64_t{sizeof(int64_t)};
  parts.has_row = parts.last + keys * int64_t{sizeof(int32_t)};
  parts.rows = RoundUp(parts.has_row + keys, kCacheLine);
  parts.end = RoundUp(parts.rows + keys * dim * int64_t{sizeof(float)}, kCacheLine);
  return parts;
}

int64_t Front(int64_t tables, int64_t hosts) {
  return RoundUp(int64_t{sizeof(PassSegment)} + tables * int64_t{sizeof(PassTable)} +
                     tables * hosts * int64_t{sizeof(PassOwner)},
                 kCacheLine);
}

std::string BellPath(const std::string& directory) { return directory + "/pass-bell"; }

}  // namespace

std::string PassFile::Path(const std::string& directory, int local_rank, int64_t number) {
  return directory + "/pass-" + std::to_string(local_rank) + "-" + std::to_string(number);
}

int64_t PassFile::Bytes(const std::vector<RequestedKeys>& requested, int64_t hosts) {
  int64_t bytes = Front(static_cast<int64_t>(requested.size()), hosts);
  for (const RequestedKeys& of : requested) {
    bytes += PartsOf(static_cast<int64_t>(of.keys.size()), of.dim).end;
  }
  return RoundUp(bytes, kPageBytes);
}

Result<PassFile> PassFile::Create(const std::string& path, uint64_t token, int64_t number,
                                  const std::vector<RequestedKeys>& requested, int64_t hosts,
                                  int64_t batches) {
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      CreateSegment(temporary, {SegmentKind::kPass, token, static_cast<uint64_t>(number)},
                    Bytes(requested, hosts), "the rows of a pass"));
  PassFile pass(std::move(file));
  pass.segment()->tables = requested.size();
  pass.segment()->hosts = static_cast<uint64_t>(hosts);
  pass.segment()->batches = static_cast<uint64_t>(batches);
  auto offset = static_cast<uint64_t>(Front(pass.tables(), hosts));
  for (int64_t t = 0; t < pass.tables(); ++t) {
    const RequestedKeys& of = requested[static_cast<size_t>(t)];
    PassTable* const table = pass.of(t);
    of.table.copy(table->name, kMaxTableName);
    table->dim = static_cast<uint64_t>(of.dim);
    table->keys = of.keys.size();
    table->offset = offset;
    if (!of.keys.empty()) {
      const Parts parts = PartsOf(static_cast<int64_t>(of.keys.size()), of.dim);
      std::memcpy(pass.KeysAt(t), of.keys.data(), of.keys.size() * sizeof(int64_t));
      std::memcpy(pass.KeysAt(t) + parts.last, of.last.data(), of.last.size() * sizeof(int32_t));
      offset += static_cast<uint64_t>(parts.end);
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return pass;
}

Result<PassFile> PassFile::Open(const std::string& path, uint64_t token, int64_t number) {
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      OpenSegmentWritable(path, {SegmentKind::kPass, token, static_cast<uint64_t>(number)},
                          kPageBytes));
  PassFile pass(std::move(file));
  TFHYBRID_RETURN_IF_ERROR(pass.Check(path));
  return pass;
}

Status PassFile::Check(const std::string& path) const {
  const uint64_t size = static_cast<uint64_t>(file_.size());
  const uint64_t tables = segment()->tables, hosts = segment()->hosts;
  bool sane = tables <= size / sizeof(PassTable) && hosts <= size / sizeof(PassOwner) &&
              static_cast<uint64_t>(Front(this->tables(), static_cast<int64_t>(hosts))) <= size;
  for (int64_t t = 0; sane && t < this->tables(); ++t) {
    const PassTable& table = *of(t);
    sane = table.dim > 0 && table.dim <= static_cast<uint64_t>(kMaxDim) &&
           table.keys <= size / (sizeof(float) * table.dim) && table.offset <= size &&
           static_cast<uint64_t>(
               PartsOf(static_cast<int64_t>(table.keys), static_cast<int64_t>(table.dim)).end) <=
               size - table.offset;
  }
  if (sane) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, " is damaged");
}

std::string PassFile::name(int64_t table) const {
  return std::string(of(table)->name, strnlen(of(table)->name, kMaxTableName));
}

Span<const int64_t> PassFile::keys(int64_t table) const {
  return {reinterpret_cast<const int64_t*>(KeysAt(table)), static_cast<int64_t>(of(table)->keys)};
}

const int32_t* PassFile::last(int64_t table) const {
  return reinterpret_cast<const int32_t*>(KeysAt(table) +
                                          PartsOf(keys(table).size(), dim(table)).last);
}

uint8_t* PassFile::has_row(int64_t table) const {
  return KeysAt(table) + PartsOf(keys(table).size(), dim(table)).has_row;
}

float* PassFile::rows(int64_t table) const {
  return reinterpret_cast<float*>(KeysAt(table) + PartsOf(keys(table).size(), dim(table)).rows);
}

PassOwner* PassFile::owner(int64_t table, int64_t host) const {
  return reinterpret_cast<PassOwner*>(of(tables())) +
         table * static_cast<int64_t>(segment()->hosts) + host;
}

PassState PassFile::state() const { return static_cast<PassState>(LoadWord(&segment()->state)); }

void PassFile::SetState(PassState state) {
  PublishWord(&segment()->state, static_cast<uint64_t>(state));
}

void PassFile::Fail(const Status& why) {
  if (state() >= PassState::kFailed) return;
  why.message().copy(segment()->failure, kMaxFailure);
  SetState(PassState::kFailed);
}

Status PassFile::failure() const {
  const char* const why = segment()->failure;
  return Status::Error(StatusCode::kPeerDied, "The rows of a pass did not come: ",
                       std::string(why, strnlen(why, kMaxFailure)));
}

bool PassFile::AwaitState(PassState state, int timeout_ms) const {
  return WaitWord(&segment()->state, static_cast<uint64_t>(state), timeout_ms);
}

Result<std::unique_ptr<PassBell>> PassBell::Create(const std::string& directory, uint64_t token) {
  const std::string temporary = BellPath(directory) + ".new";
  unlink(temporary.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      CreateSegment(temporary, {SegmentKind::kBell, token, 0}, sizeof(BellSegment), "passes"));
  if (std::rename(temporary.c_str(), BellPath(directory).c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return std::unique_ptr<PassBell>(new PassBell(std::move(file)));
}

Result<std::unique_ptr<PassBell>> PassBell::Open(const std::string& directory, uint64_t token) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            OpenSegmentWritable(BellPath(directory), {SegmentKind::kBell, token, 0},
                                                sizeof(BellSegment)));
  return std::unique_ptr<PassBell>(new PassBell(std::move(file)));
}

void PassBell::Ring() { AddToWord(&segment()->rung); }

uint64_t PassBell::rung() const { return LoadWord(&segment()->rung); }

void PassBell::Await(uint64_t seen) const { WaitWord(&segment()->rung, seen + 1, kWaitSliceMs); }

// Relaxed: a count tells nothing of other memory.
void PassBell::Count(PassCounter counter, int64_t more) {
  __atomic_fetch_add(&segment()->counts[static_cast<int>(counter)], static_cast<uint64_t>(more),
                     __ATOMIC_RELAXED);
}

int64_t PassBell::CountOf(PassCounter counter) const {
  return static_cast<int64_t>(
      __atomic_load_n(&segment()->counts[static_cast<int>(counter)], __ATOMIC_RELAXED));
}

}  // namespace tfhybrid
