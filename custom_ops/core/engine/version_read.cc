#include "core/engine/version_read.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/engine/held_writers.h"
#include "core/exchange/row_frames.h"
#include "core/shm/wait_word.h"

namespace tfhybrid {
namespace {

using Clock = std::chrono::steady_clock;
using Versions = std::vector<uint64_t>;

constexpr int kAttempts = 2;

bool AreUnchanged(const std::vector<TableRead>& reads, const std::vector<uint64_t>& sequences) {
  for (size_t i = 0; i < reads.size(); ++i) {
    if (!reads[i].table->reader->SequenceIs(sequences[i])) return false;
  }
  return true;
}

// Nothing where rows changed meanwhile.
Result<std::optional<Versions>> Try(const std::vector<TableRead>& reads, const CopyRows& copy) {
  std::vector<uint64_t> sequences;
  Versions versions;
  for (const TableRead& read : reads) {
    sequences.push_back(read.table->reader->Sequence());
    if (sequences.back() % 2 != 0) return std::optional<Versions>();
    versions.push_back(read.table->reader->version());
  }
  const auto have_changed = [&] { return !AreUnchanged(reads, sequences); };
  const Status copied = copy(have_changed);
  if (have_changed()) return std::optional<Versions>();
  TFHYBRID_RETURN_IF_ERROR(copied);
  return std::optional<Versions>(std::move(versions));
}

Status WaitForVersions(const std::vector<TableRead>& reads, const std::function<Status()>& check,
                       int slice_ms) {
  for (const TableRead& read : reads) {
    TFHYBRID_RETURN_IF_ERROR(read.table->reader->WaitVersion(read.min_version, check, slice_ms));
  }
  return Status::Ok();
}

bool Leads(const std::vector<TableRead>& reads) {
  return !reads.empty() && reads.front().table->writer != nullptr;
}

OpenTables TablesOf(const std::vector<TableRead>& reads) {
  OpenTables tables;
  for (const TableRead& read : reads) tables.push_back(read.table);
  return tables;
}

}  // namespace

std::vector<int64_t> MarkReads(std::vector<TableRead>* reads) {
  int64_t size = 0;
  for (const TableRead& read : *reads) size += WordsOfMarks(read.keys.size());
  std::vector<int64_t> marks(static_cast<size_t>(size));
  auto* to = reinterpret_cast<uint8_t*>(marks.data());
  for (TableRead& read : *reads) {
    read.has_row = to;
    to += WordsOfMarks(read.keys.size()) * static_cast<int64_t>(sizeof(int64_t));
  }
  return marks;
}

Result<std::vector<uint64_t>> ReadVersion(const std::vector<TableRead>& reads, int timeout_ms,
                                          const std::function<Status()>& check_alive) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  const auto check = [&]() -> Status {
    if (Clock::now() < deadline) return check_alive();
    return Status::Error(StatusCode::kDeadlineExceeded, "Rows of the version that was asked for ",
                         "could not be read within ", timeout_ms, " ms");
  };
  const int slice = std::min(timeout_ms, kWaitSliceMs);
  TFHYBRID_RETURN_IF_ERROR(WaitForVersions(reads, check, slice));
  const auto copy = [&](const auto& /*have_changed*/) {
    Status looked_up;
    for (const TableRead& read : reads) {
      if (!looked_up.ok()) continue;
      looked_up = read.table->reader->Lookup(read.keys, read.embeddings,
                                             UnseenKeys{false, false, read.has_row});
    }
    return looked_up;
  };
  for (int attempt = 1;; ++attempt) {
    TFHYBRID_ASSIGN_OR_RETURN(std::optional<Versions> versions, Try(reads, copy));
    if (versions.has_value()) return *std::move(versions);
    if (attempt < kAttempts) continue;
    if (Leads(reads)) {
      const HeldWriters held(TablesOf(reads));
      TFHYBRID_ASSIGN_OR_RETURN(versions, Try(reads, copy));
      if (versions.has_value()) return *std::move(versions);
      return Status::Error(StatusCode::kDataLoss, "The rows of table '",
                           reads.front().table->reader->name(),
                           "' change, and nobody changes them");
    }
    for (const TableRead& read : reads) {
      while (!read.table->reader->WaitForQuiet(slice)) TFHYBRID_RETURN_IF_ERROR(check());
    }
    TFHYBRID_RETURN_IF_ERROR(check());
  }
}

Result<std::optional<Versions>> TryReadVersion(const std::vector<TableRead>& reads,
                                               const std::function<Status()>& check_alive,
                                               const CopyRows& copy) {
  TFHYBRID_RETURN_IF_ERROR(WaitForVersions(reads, check_alive, kWaitSliceMs));
  return Try(reads, copy);
}

}  // namespace tfhybrid
