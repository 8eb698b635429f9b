#include "core/store/row_tier.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/shm/directory.h"
#include "core/util/copy_floats.h"
#include "core/util/crc32c.h"
#include "core/util/fault_point.h"
#include "core/util/system_message.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 30;
constexpr int64_t kMaxFloats = int64_t{1} << 20;

std::string FilesOf(const TierShape& shape) {
  return std::string(shape.files, strnlen(shape.files, kMaxFilesPath));
}

bool IsOwnDirectory(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

Status MakeDirectory(const std::string& path) {
  // What a leader left that died while it made the table.
  if (IsOwnDirectory(path)) static_cast<void>(RemoveTree(path));
  if (mkdir(path.c_str(), 0700) == 0) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument,
                       "FileTier wants a directory that exists and that this user may write to. "
                       "Cannot create ",
                       path, ": ", SystemMessage(errno));
}

}  // namespace

int64_t CacheSlots(int64_t cache_bytes, int64_t record_floats) {
  const int64_t slot = RecordBytes(record_floats) + static_cast<int64_t>(sizeof(CacheSlot));
  return std::clamp<int64_t>(cache_bytes / slot, 0, kMaxSlots);
}

int64_t CacheImagesOffset(int64_t slots) {
  return RoundUp(kPageBytes + slots * static_cast<int64_t>(sizeof(CacheSlot)), kCacheLine);
}

Status CheckCache(const std::string& path, const MappedFile& cache) {
  const auto* segment = reinterpret_cast<const CacheSegment*>(cache.data());
  const auto slots = static_cast<int64_t>(segment->slots);
  const auto floats = static_cast<int64_t>(segment->record_floats);
  const bool possible = slots > 0 && slots <= kMaxSlots && floats > 0 && floats <= kMaxFloats &&
                        CacheImagesOffset(slots) + slots * RecordBytes(floats) <= cache.size();
  if (possible) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, " is damaged: ", slots, " slots of ", floats,
                       " numbers in ", cache.size(), " bytes");
}

uint32_t ChecksumOf(int64_t number, const float* record, int64_t floats) {
  return Crc32c(record, RecordBytes(floats), static_cast<uint32_t>(number)) & ~kCached;
}

std::string TierDirectory(const std::string& files, const std::string& store_directory,
                          uint64_t token, const std::string& table_name) {
  // Not as stores are named: the directory may be that of the stores.
  return files + "/rows-" + FileName(store_directory) + "-" + std::to_string(token) + "." +
         PercentEncode(table_name);
}

Result<MappedFile> CreateTier(const std::string& store_directory, uint64_t token,
                              const std::string& table_name, const TierShape& shape) {
  const std::string path = TablePaths(store_directory, table_name).Tier();
  // What a leader left that died while it made the table.
  unlink(path.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            CreateSegment(path, {SegmentKind::kTier, token, 0}, sizeof(TierSegment),
                                          "table '" + table_name + "'"));
  auto* segment = reinterpret_cast<TierSegment*>(file.mutable_data());
  segment->shape = shape;
  segment->shape_crc = Crc32c(&shape, sizeof(shape));
  TFHYBRID_FAULT_POINT();
  // Behind the segment: whoever removes the store finds the directory.
  const Status made =
      MakeDirectory(TierDirectory(FilesOf(shape), store_directory, token, table_name));
  if (made.ok()) return file;
  unlink(path.c_str());
  return made;
}

Result<MappedFile> OpenTier(const std::string& path, uint64_t token, bool writable) {
  if (access(path.c_str(), F_OK) != 0) return MappedFile();
  const SegmentIdentity identity = {SegmentKind::kTier, token, 0};
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            writable ? OpenSegmentWritable(path, identity, sizeof(TierSegment))
                                     : OpenSegment(path, identity, sizeof(TierSegment)));
  const auto* segment = reinterpret_cast<const TierSegment*>(file.data());
  if (segment->shape_crc != Crc32c(&segment->shape, sizeof(TierShape))) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: its checksum is wrong");
  }
  return file;
}

void RemoveTiers(const std::string& store_directory) {
  for (const std::string& name : NamesOrNone(store_directory)) {
    if (!HasSuffix(name, ".tier")) continue;
    const std::string path = store_directory + "/" + name;
    const Result<MappedFile> file = MappedFile::OpenReadOnly(path);
    if (!file.ok() || file.value().size() < static_cast<int64_t>(sizeof(TierSegment))) continue;
    const uint64_t token = reinterpret_cast<const SegmentHeader*>(file.value().data())->token;
    const Result<MappedFile> tier = OpenTier(path, token, false);
    if (!tier.ok()) continue;
    const auto* segment = reinterpret_cast<const TierSegment*>(tier.value().data());
    // The name is encoded already.
    const std::string directory =
        TierDirectory(FilesOf(segment->shape), store_directory, token, "") + Stem(name);
    if (IsOwnDirectory(directory)) static_cast<void>(RemoveTree(directory));
  }
}

RowTier::RowTier(MappedFile cache, RowFile file)
    : cache_(std::move(cache)),
      file_(std::move(file)),
      record_floats_(static_cast<int64_t>(this->cache().record_floats)),
      slots_(CacheSlotsOf(cache_)),
      images_(CacheImagesOf(cache_)) {}

Result<std::shared_ptr<const RowTier>> RowTier::Open(const TablePaths& paths,
                                                     const std::string& tier_directory,
                                                     uint64_t token, uint64_t generation) {
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile cache,
      OpenSegment(paths.Cache(generation), {SegmentKind::kCache, token, generation}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckCache(paths.Cache(generation), cache));
  const auto floats =
      static_cast<int64_t>(reinterpret_cast<const CacheSegment*>(cache.data())->record_floats);
  TFHYBRID_ASSIGN_OR_RETURN(
      RowFile file,
      RowFile::OpenReadOnly(TierRows(tier_directory, generation), RecordBytes(floats)));
  return std::shared_ptr<const RowTier>(new RowTier(std::move(cache), std::move(file)));
}

void RowTier::Fetch(const uint64_t* address) const {
  const uint64_t now = __atomic_load_n(address, __ATOMIC_RELAXED);
  if (!IsCached(now)) return file_.Fetch(RecordOf(now));
  __builtin_prefetch(images_ + SlotOf(now) * record_floats_);
}

// The slot held the row when `fills` was read, because the address named it still after that; and
// it held no other row while it was copied, if `fills` is the same at the end.
bool RowTier::CopyCached(const uint64_t* address, uint64_t now, float* record) const {
  const int64_t number = SlotOf(now);
  const uint64_t fills = __atomic_load_n(&slots_[number].fills, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(address, __ATOMIC_ACQUIRE) != now) return false;
  CopyFloats(images_ + number * record_floats_, record_floats_, record);
  std::atomic_thread_fence(std::memory_order_acquire);
  return __atomic_load_n(&slots_[number].fills, __ATOMIC_RELAXED) == fills;
}

// A record whose checksum is wrong was being written, unless no write-back has begun since the
// address was seen to name the file.
Status RowTier::Read(const uint64_t* address, float* record) const {
  for (;;) {
    const uint64_t now = __atomic_load_n(address, __ATOMIC_ACQUIRE);
    const int64_t number = RecordOf(now);
    if (IsCached(now)) {
      if (SlotOf(now) >= static_cast<int64_t>(cache().slots)) {
        return Status::Error(StatusCode::kDataLoss, "A table of ", file_.path(),
                             " is damaged: the row of record ", number,
                             " lies in no slot of its cache");
      }
      if (CopyCached(address, now, record)) return Status::Ok();
      continue;
    }
    const uint64_t write_backs = __atomic_load_n(&cache().write_backs, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(address, __ATOMIC_ACQUIRE) != now) continue;
    Status read = file_.Read(number, record);
    if (read.ok() && ChecksumOf(number, record, record_floats_) == WordOf(now)) {
      return Status::Ok();
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (__atomic_load_n(&cache().write_backs, __ATOMIC_ACQUIRE) != write_backs ||
        __atomic_load_n(address, __ATOMIC_ACQUIRE) != now) {
      continue;
    }
    if (!read.ok()) return read;
    return Status::Error(StatusCode::kDataLoss, "Record ", number, " of ", file_.path(),
                         " is damaged: its checksum is wrong");
  }
}

}  // namespace tfhybrid
