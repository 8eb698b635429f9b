#include "core/update/update_journal.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "core/store/segment.h"
#include "core/util/crc32c.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

int64_t HostsOffset() { return kPageBytes; }

int64_t TablesOffset(int64_t ranks) {
  return RoundUp(HostsOffset() + ranks * static_cast<int64_t>(sizeof(int64_t)), kCacheLine);
}

int64_t LanesOffset(int64_t ranks, int64_t tables) {
  return RoundUp(TablesOffset(ranks) + tables * static_cast<int64_t>(sizeof(JournalTable)),
                 kCacheLine);
}

std::string JournalPath(const std::string& path) { return path + ".journal"; }

Status CheckSizes(const std::string& path, const MappedFile& file) {
  const auto& segment = *reinterpret_cast<const JournalSegment*>(file.data());
  const auto size = static_cast<uint64_t>(file.size());
  // Each alone first, so that their products cannot overflow.
  const bool sane =
      segment.ranks > 0 && segment.ranks < size && segment.tables < size &&
      segment.lane_bytes < size &&
      LanesOffset(static_cast<int64_t>(segment.ranks), static_cast<int64_t>(segment.tables)) +
              UpdateJournal::kLanes * static_cast<int64_t>(segment.lane_bytes) <=
          file.size() &&
      segment.reduction <= static_cast<uint32_t>(Reduction::kMean) &&
      segment.exchange <= static_cast<uint32_t>(Exchange::kAllRanks) &&
      segment.clipping <= static_cast<uint32_t>(Clipping::kGlobalNorm);
  if (sane) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, " is damaged: ", segment.ranks, " ranks, ",
                       segment.tables, " tables and lanes of ", segment.lane_bytes, " bytes in ",
                       size);
}

}  // namespace

Result<UpdateJournal> UpdateJournal::Create(const std::string& path, uint64_t token,
                                            const UpdateSettings& settings, int64_t row_floats) {
  const auto ranks = static_cast<int64_t>(settings.hosts.size());
  const auto tables = static_cast<int64_t>(settings.schema.tables.size());
  const int64_t lane_bytes = static_cast<int64_t>(sizeof(UndoLane)) +
                             RoundUp(row_floats * int64_t{sizeof(float)}, kCacheLine);
  // Under a temporary name until it is complete: a new leader distrusts half a journal.
  const std::string temporary = JournalPath(path) + ".new";
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      CreateSegment(temporary, {SegmentKind::kJournal, token, 0},
                    LanesOffset(ranks, tables) + kLanes * lane_bytes, "the journal of updates"));
  auto* segment = reinterpret_cast<JournalSegment*>(file.mutable_data());
  segment->reduction = static_cast<uint32_t>(settings.reduction);
  segment->exchange = static_cast<uint32_t>(settings.exchange);
  segment->clipping = static_cast<uint32_t>(settings.clipping);
  segment->clip_limit = settings.clip_limit;
  segment->sharded = settings.sharded ? 1 : 0;
  segment->ranks = static_cast<uint64_t>(ranks);
  segment->tables = static_cast<uint64_t>(tables);
  segment->lane_bytes = static_cast<uint64_t>(lane_bytes);
  std::memcpy(file.mutable_data() + HostsOffset(), settings.hosts.data(),
              settings.hosts.size() * sizeof(int64_t));
  UpdateJournal journal(settings, std::move(file));
  for (int64_t t = 0; t < tables; ++t) {
    const std::string& name = settings.schema.tables[static_cast<size_t>(t)];
    std::memcpy(journal.tables()[t].name, name.data(),
                std::min<size_t>(name.size(), kMaxTableName));
    journal.tables()[t].dim = static_cast<uint64_t>(settings.schema.dims[static_cast<size_t>(t)]);
  }
  segment->crc = journal.ConstantsCrc();
  TFHYBRID_FAULT_POINT();
  if (std::rename(temporary.c_str(), JournalPath(path).c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return journal;
}

Result<UpdateJournal> UpdateJournal::Open(const std::string& path, uint64_t token) {
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile file,
      OpenSegmentWritable(JournalPath(path), {SegmentKind::kJournal, token, 0}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckSizes(JournalPath(path), file));
  const auto& segment = *reinterpret_cast<const JournalSegment*>(file.data());
  UpdateSettings settings;
  settings.reduction = static_cast<Reduction>(segment.reduction);
  settings.exchange = static_cast<Exchange>(segment.exchange);
  settings.clipping = static_cast<Clipping>(segment.clipping);
  settings.clip_limit = segment.clip_limit;
  settings.sharded = segment.sharded != 0;
  const auto* hosts = reinterpret_cast<const int64_t*>(file.data() + HostsOffset());
  settings.hosts.assign(hosts, hosts + segment.ranks);
  UpdateJournal journal(std::move(settings), std::move(file));
  for (uint64_t t = 0; t < journal.segment()->tables; ++t) {
    const JournalTable& table = journal.tables()[t];
    journal.settings_.schema.tables.emplace_back(table.name, strnlen(table.name, kMaxTableName));
    journal.settings_.schema.dims.push_back(static_cast<int64_t>(table.dim));
  }
  if (journal.segment()->crc != journal.ConstantsCrc()) {
    return Status::Error(StatusCode::kDataLoss, JournalPath(path),
                         " is damaged: its checksum is wrong");
  }
  return journal;
}

Status UpdateJournal::CheckLanes(int64_t rows) const {
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const UndoLane& at = *LaneAt(lane);
    const int64_t in_lane = rows * (lane + 1) / kLanes - rows * lane / kLanes;
    if (at.done <= static_cast<uint64_t>(in_lane) && at.armed <= at.done + 1) continue;
    return Status::Error(StatusCode::kDataLoss, "A journal is damaged: lane ", lane, " has done ",
                         at.done, " of ", in_lane, " rows");
  }
  return Status::Ok();
}

// REQUIRES: the sizes are checked.
uint32_t UpdateJournal::ConstantsCrc() const {
  const JournalSegment* all = segment();
  uint32_t crc =
      Crc32c(&all->reduction, offsetof(JournalSegment, crc) - offsetof(JournalSegment, reduction));
  crc =
      Crc32c(file_.data() + HostsOffset(), static_cast<int64_t>(all->ranks * sizeof(int64_t)), crc);
  for (uint64_t t = 0; t < all->tables; ++t) {
    crc = Crc32c(&tables()[t], offsetof(JournalTable, beginning), crc);
  }
  return crc;
}

bool UpdateJournal::begun() const {
  return __atomic_load_n(&segment()->begun, __ATOMIC_ACQUIRE) != 0;
}

void UpdateJournal::Begin(const std::vector<TableBeginning>& beginnings) {
  for (size_t t = 0; t < beginnings.size(); ++t) tables()[t].beginning = beginnings[t];
  TFHYBRID_FAULT_POINT();
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    // Member by member: what lies between the members stays 0.
    LaneAt(lane)->done = 0;
    LaneAt(lane)->armed = 0;
  }
  TFHYBRID_FAULT_POINT();
  // Release: whoever finds the update begun finds all of the above.
  __atomic_store_n(&segment()->begun, 1, __ATOMIC_RELEASE);
}

void UpdateJournal::End() { __atomic_store_n(&segment()->begun, 0, __ATOMIC_RELEASE); }

JournalTable* UpdateJournal::tables() const {
  return reinterpret_cast<JournalTable*>(file_.mutable_data() +
                                         TablesOffset(static_cast<int64_t>(segment()->ranks)));
}

UndoLane* UpdateJournal::LaneAt(int64_t number) const {
  const int64_t lanes =
      LanesOffset(static_cast<int64_t>(segment()->ranks), static_cast<int64_t>(segment()->tables));
  return reinterpret_cast<UndoLane*>(file_.mutable_data() + lanes +
                                     number * static_cast<int64_t>(segment()->lane_bytes));
}

}  // namespace tfhybrid
