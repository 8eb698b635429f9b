// KeptState: what a rank keeps beside the tables, so that a job can be resumed from memory:
// its dense weights and their optimizer, say, as they were after a step.
//
//   kept-R    of local rank R: KeptSegment, configuration (text), two slots (KeptSlot, content)
//
// The last state and the one before it are complete at any instant but while the next is written,
// over the older one; a store to `published` makes it the last. That suffices, because no rank
// begins to write the state of step k + 1 before the tables of its host have the update of step k.
//
// One process writes, and no other reads. Not thread-safe.
#ifndef TFHYBRID_CORE_STORE_KEPT_STATE_H_
#define TFHYBRID_CORE_STORE_KEPT_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct KeptSegment {
  SegmentHeader header;
  uint64_t configuration_bytes;
  uint64_t slot_bytes;             // of a state
  uint64_t crc;                    // of the two above and the configuration
  alignas(64) uint64_t published;  // atomic: the last complete state; it lies in slot published % 2
};
static_assert(offsetof(KeptSegment, published) == 128);

struct KeptSlot {
  uint64_t number;  // of the state, from 1; 0 while it is being written
  uint64_t step;
  uint64_t tables;  // Store::TablesDigest() that belongs to it
  uint64_t crc;     // of the three above and the content
  uint64_t reserved[4];
};
static_assert(sizeof(KeptSlot) == 64);

class KeptState {
 public:
  // A state that is complete. `content` is valid until the next Write().
  struct Complete {
    uint64_t number, step, tables;
    Span<const uint8_t> content;
  };

  // `configuration`: what must be the same for the states to be of use. A file that is there is
  // replaced.
  static Result<KeptState> Create(const std::string& path, uint64_t token,
                                  const std::string& configuration, int64_t bytes);
  // Opens what a dead process left.
  static Result<KeptState> Open(const std::string& path, uint64_t token);

  std::string configuration() const;
  int64_t bytes() const { return static_cast<int64_t>(segment()->slot_bytes); }
  // The last first.
  std::vector<Complete> States() const;

  // Sets the bytes with which every state begins from now on. They lie in this process until a
  // state is written.
  Status SetNote(Span<const uint8_t> note);
  int64_t note_bytes() const { return static_cast<int64_t>(note_.size()); }
  // Room for the next state, behind its note. From here on the state before the last is lost.
  Span<uint8_t> Write();
  // Makes what was written the last state. REQUIRES: Write().
  void Publish(uint64_t step, uint64_t tables);
  // Makes a state the last, and forgets the one that came after it. REQUIRES: one of States().
  void StepBackTo(uint64_t number);

 private:
  explicit KeptState(MappedFile file) : file_(std::move(file)) {}
  KeptSegment* segment() const { return reinterpret_cast<KeptSegment*>(file_.mutable_data()); }
  KeptSlot* SlotOf(uint64_t number) const;
  uint8_t* ContentOf(uint64_t number) const;
  uint32_t CrcOf(uint64_t number) const;
  uint32_t ConstantsCrc() const;

  MappedFile file_;
  std::vector<uint8_t> note_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_KEPT_STATE_H_
