#include "core/store/kept_state.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "core/store/segment.h"
#include "core/util/crc32c.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

constexpr int64_t kConfigurationOffset = kPageBytes;
// More than a model's variables ever take, and little enough that sums of it do not overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 48;

int64_t SlotsOffset(const KeptSegment& segment) {
  return RoundUp(kConfigurationOffset + static_cast<int64_t>(segment.configuration_bytes),
                 kCacheLine);
}

int64_t SlotBytes(const KeptSegment& segment) {
  return RoundUp(static_cast<int64_t>(sizeof(KeptSlot) + segment.slot_bytes), kCacheLine);
}

Status CheckSizes(const std::string& path, const MappedFile& file) {
  const auto& segment = *reinterpret_cast<const KeptSegment*>(file.data());
  const bool sane = segment.configuration_bytes < kMaxBytes && segment.slot_bytes < kMaxBytes &&
                    SlotsOffset(segment) + 2 * SlotBytes(segment) <= file.size();
  if (sane) return Status::Ok();
  return Status::Error(StatusCode::kDataLoss, path, " is damaged: states of ", segment.slot_bytes,
                       " bytes in ", file.size());
}

}  // namespace

Result<KeptState> KeptState::Create(const std::string& path, uint64_t token,
                                    const std::string& configuration, int64_t bytes) {
  KeptSegment sizes = {};
  sizes.configuration_bytes = configuration.size();
  sizes.slot_bytes = static_cast<uint64_t>(bytes);
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            CreateSegment(temporary, {SegmentKind::kKept, token, 0},
                                          SlotsOffset(sizes) + 2 * SlotBytes(sizes),
                                          "the state that a rank keeps for a restart from memory"));
  KeptState kept(std::move(file));
  kept.segment()->configuration_bytes = sizes.configuration_bytes;
  kept.segment()->slot_bytes = sizes.slot_bytes;
  std::memcpy(kept.file_.mutable_data() + kConfigurationOffset, configuration.data(),
              configuration.size());
  kept.segment()->crc = kept.ConstantsCrc();
  TFHYBRID_FAULT_POINT();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return kept;
}

Result<KeptState> KeptState::Open(const std::string& path, uint64_t token) {
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile file,
                            OpenSegmentWritable(path, {SegmentKind::kKept, token, 0}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckSizes(path, file));
  KeptState kept(std::move(file));
  if (kept.segment()->crc != kept.ConstantsCrc()) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: its checksum is wrong");
  }
  return kept;
}

std::string KeptState::configuration() const {
  return std::string(reinterpret_cast<const char*>(file_.data()) + kConfigurationOffset,
                     segment()->configuration_bytes);
}

std::vector<KeptState::Complete> KeptState::States() const {
  std::vector<Complete> states;
  const uint64_t last = __atomic_load_n(&segment()->published, __ATOMIC_ACQUIRE);
  for (uint64_t number = last; number > 0 && number + 2 > last; --number) {
    const KeptSlot& slot = *SlotOf(number);
    if (slot.number != number || slot.crc != CrcOf(number)) continue;
    states.push_back(
        {number, slot.step, slot.tables, Span<const uint8_t>(ContentOf(number), bytes())});
  }
  return states;
}

Status KeptState::SetNote(Span<const uint8_t> note) {
  if (note.size() > bytes()) {
    return Status::Error(StatusCode::kInvalidArgument, "A note of ", note.size(),
                         " bytes does not fit into a state of ", bytes());
  }
  note_.assign(note.begin(), note.end());
  return Status::Ok();
}

Span<uint8_t> KeptState::Write() {
  const uint64_t number = segment()->published + 1;
  // Nobody shall take half a state for the one that lay here; see update_journal.h for the fence.
  __atomic_store_n(&SlotOf(number)->number, 0, __ATOMIC_RELEASE);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  TFHYBRID_FAULT_POINT();
  if (!note_.empty()) std::memcpy(ContentOf(number), note_.data(), note_.size());
  return Span<uint8_t>(ContentOf(number) + note_bytes(), bytes() - note_bytes());
}

void KeptState::Publish(uint64_t step, uint64_t tables) {
  const uint64_t number = segment()->published + 1;
  KeptSlot* slot = SlotOf(number);
  slot->step = step;
  slot->tables = tables;
  TFHYBRID_FAULT_POINT();
  slot->crc = CrcOf(number);
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&slot->number, number, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&segment()->published, number, __ATOMIC_RELEASE);
}

void KeptState::StepBackTo(uint64_t number) {
  __atomic_store_n(&segment()->published, number, __ATOMIC_RELEASE);
}

KeptSlot* KeptState::SlotOf(uint64_t number) const {
  const int64_t offset =
      SlotsOffset(*segment()) + static_cast<int64_t>(number % 2) * SlotBytes(*segment());
  return reinterpret_cast<KeptSlot*>(file_.mutable_data() + offset);
}

uint8_t* KeptState::ContentOf(uint64_t number) const {
  return reinterpret_cast<uint8_t*>(SlotOf(number) + 1);
}

// With the number that the slot is to have, whether it has it yet or not.
uint32_t KeptState::CrcOf(uint64_t number) const {
  const KeptSlot& slot = *SlotOf(number);
  const uint64_t words[] = {number, slot.step, slot.tables};
  return Crc32c(ContentOf(number), bytes(), Crc32c(words, sizeof(words)));
}

// REQUIRES: the sizes are checked.
uint32_t KeptState::ConstantsCrc() const {
  const uint32_t crc = Crc32c(&segment()->configuration_bytes, 2 * sizeof(uint64_t));
  return Crc32c(file_.data() + kConfigurationOffset,
                static_cast<int64_t>(segment()->configuration_bytes), crc);
}

}  // namespace tfhybrid
