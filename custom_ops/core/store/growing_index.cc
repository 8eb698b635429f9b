#include "core/store/growing_index.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

constexpr int64_t kFirstIndexSlots = 128;
// An index in the making is adopted when it is this close to the last row.
constexpr int64_t kCaughtUp = 4096;
constexpr int64_t kInsertCostNs = 15;

template <typename T>
bool Ready(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Status GrowingIndex::Restart() { return Build(kFirstIndexSlots); }

Status GrowingIndex::Attach() {
  const std::string path = page_->paths().Index(generation());
  TFHYBRID_ASSIGN_OR_RETURN(
      file_,
      OpenSegmentWritable(path, {SegmentKind::kIndex, page_->token(), generation()}, kPageBytes));
  TFHYBRID_RETURN_IF_ERROR(CheckIndex(path, file_, kind_));
  const int64_t slots = SlotCount(file_);
  if (page_->rows() > MaxKeysOf(kind_, slots)) {
    return Status::Error(StatusCode::kDataLoss, path, " is damaged: ", slots, " slots for ",
                         page_->rows(), " rows");
  }
  index_ = TableIndex(file_, kind_);
  return Status::Ok();
}

void GrowingIndex::RemoveUnfinished() const {
  unlink(page_->paths().Index(generation() - 1).c_str());
  unlink(page_->paths().Index(generation() + 1).c_str());
}

Status GrowingIndex::Complete() {
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<int64_t> missing, RowsNotNamed());
  // Counted before anything is inserted: no insertion ends in an index without an empty slot.
  const int64_t named = page_->rows() - static_cast<int64_t>(missing.size());
  const KeyIndex::Use use = index_.CountUse();
  freed_ = use.freed;
  const int64_t slots = SlotCount(file_);
  if (use.taken != named || page_->rows() + use.freed > MaxKeysOf(kind_, slots)) {
    return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                         "' is damaged: its index has ", use.taken, " keys, of which ", named,
                         " have a row, and ", use.freed, " freed slots of ", slots);
  }
  for (const int64_t row : missing) {
    freed_ += index_.Insert(chunks_->KeyOf(row), row);
    TFHYBRID_FAULT_POINT();
  }
  return Status::Ok();
}

Result<std::vector<int64_t>> GrowingIndex::RowsNotNamed() const {
  constexpr int64_t kBlock = 4096;
  std::vector<int64_t> found(kBlock), missing;
  const std::vector<const int64_t*> keys_of_chunks = chunks_->KeysOfChunks();
  const int64_t rows = page_->rows();
  for (int64_t row = 0, chunk = 0; row < rows; ++chunk) {
    const int64_t in_chunk = std::min(page_->locator().ChunkRows(chunk), rows - row);
    const int64_t* keys = keys_of_chunks[static_cast<size_t>(chunk)];
    for (int64_t start = 0; start < in_chunk; start += kBlock) {
      const int64_t count = std::min(kBlock, in_chunk - start);
      FindBatch(Span<const int64_t>(keys + start, count), Span<int64_t>(found));
      for (int64_t i = 0; i < count; ++i, ++row) {
        const int64_t named = found[static_cast<size_t>(i)];
        if (named == row) continue;
        if (named != KeyIndex::kMissing) {
          return Status::Error(StatusCode::kDataLoss, "Table '", page_->name(),
                               "' is damaged: key ", keys[start + i], " has the rows ", row,
                               " and ", named);
        }
        missing.push_back(row);
      }
    }
  }
  return missing;
}

bool GrowingIndex::InsertNew(Span<const int64_t> keys, int64_t first, uint8_t* parts,
                             const ParallelFor& parallel_for) {
  bool all_new = false;
  try {
    all_new = InsertParts(keys, first, parts, parallel_for);
  } catch (...) {  // no memory, or no thread
    EraseNew(keys, first);
    throw;
  }
  if (!all_new) EraseNew(keys, first);
  return all_new;
}

bool GrowingIndex::InsertParts(Span<const int64_t> keys, int64_t first, uint8_t* parts,
                               const ParallelFor& parallel_for) {
  std::atomic<bool> all_new{true};
  const int64_t cost = kInsertCostNs * keys.size() / KeyIndex::kParts;
  parallel_for(KeyIndex::kParts, cost, [&](int64_t begin, int64_t end) {
    const bool is_new = index_.InsertNew(keys, first, static_cast<uint8_t>(begin),
                                         static_cast<uint8_t>(end), parts);
    if (!is_new) all_new = false;
    TFHYBRID_FAULT_POINT();
  });
  for (int64_t i = 0; all_new && i < keys.size(); ++i) {
    if (parts[i] != KeyIndex::kLeft) continue;
    if (Find(keys[i]) != KeyIndex::kMissing) return false;
    index_.Insert(keys[i], first + i);
  }
  return all_new;
}

void GrowingIndex::EraseNew(Span<const int64_t> keys, int64_t first) {
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (Find(keys[i]) == first + i) freed_ += index_.Erase(keys[i], first + i);
  }
}

Status GrowingIndex::Reserve(int64_t keys) {
  if (next_.valid() && Ready(next_)) AdoptAhead();
  if (keys > Room() && next_.valid()) AdoptAhead();
  if (keys <= Room()) return Status::Ok();
  return Build(SlotsNeeded(keys));
}

Status GrowingIndex::Build(int64_t slots) {
  DropAhead();
  TFHYBRID_ASSIGN_OR_RETURN(IndexAhead made, Make(slots));
  Publish(std::move(made));
  return Status::Ok();
}

Result<GrowingIndex::IndexAhead> GrowingIndex::Make(int64_t slots) const {
  const uint64_t next = generation() + 1;
  const std::string path = page_->paths().Index(next);
  IndexAhead made;
  // What an attempt without memory has left: no counter names it.
  unlink(path.c_str());
  TFHYBRID_ASSIGN_OR_RETURN(
      made.file,
      CreateSegment(path, {SegmentKind::kIndex, page_->token(), next}, IndexBytes(kind_, slots),
                    "table '" + page_->name() + "', index of " + std::to_string(slots) + " slots"));
  reinterpret_cast<IndexSegment*>(made.file.mutable_data())->slots = static_cast<uint64_t>(slots);
  made.index = TableIndex(made.file, kind_);
  TFHYBRID_FAULT_POINT();
  do {
    AddRows(page_->rows(), &made);
  } while (page_->rows() - made.rows > kCaughtUp && page_->rows() < MaxKeysOf(kind_, slots));
  return made;
}

// From the rows, which lie in order, and not from the old index, which does not.
void GrowingIndex::AddRows(int64_t end, IndexAhead* made) const {
  const std::vector<const int64_t*> keys_of_chunks = chunks_->KeysOfChunks();
  // Rows that move meanwhile may be met twice; Publish() then sets right what is wrong.
  const bool may_move = page_->policy().kind != PolicyKind::kNone;
  const RowLocator& locator = page_->locator();
  while (made->rows < end) {
    const RowLocator::ChunkOffset at = locator.Locate(made->rows);
    const int64_t* keys = keys_of_chunks[static_cast<size_t>(at.chunk)] + at.offset;
    const int64_t count = std::min(locator.ChunkRows(at.chunk) - at.offset, end - made->rows);
    const auto key_at = [keys](int64_t i) { return __atomic_load_n(&keys[i], __ATOMIC_RELAXED); };
    made->index.AddBatch(count, made->rows, key_at, may_move);
    made->rows += count;
  }
}

void GrowingIndex::Publish(IndexAhead made) {
  AddRows(page_->rows(), &made);
  std::vector<int64_t> corrected = notes_;
  for (const int64_t key : notes_) {
    made.freed += made.index.Correct(key, Find(key), [&](int64_t row) {
      if (row < page_->rows()) corrected.push_back(chunks_->KeyOf(row));
    });
  }
  for (const int64_t key : corrected) {
    const int64_t row = Find(key);
    if (row != KeyIndex::kMissing) made.freed += made.index.Complete(key, row);
  }
  notes_.clear();
  const uint64_t next = generation() + 1;
  TFHYBRID_FAULT_POINT();
  __atomic_store_n(&page_->counters().index_generation, next, __ATOMIC_RELEASE);
  TFHYBRID_FAULT_POINT();
  // A process that has it mapped keeps it until it unmaps it.
  if (next > 1) unlink(page_->paths().Index(next - 1).c_str());
  file_ = std::move(made.file);
  index_ = made.index;
  freed_ = made.freed;
}

void GrowingIndex::GrowAhead(int64_t created) {
  // An index that costs little a key has little room left when the next one is made.
  const int64_t max_keys = MaxKeysOf(kind_, SlotCount(file_));
  const int64_t enough = kind_ == IndexKind::kCompact ? max_keys / 32 * 31 : max_keys / 4 * 3;
  const int64_t expected = page_->rows() + 4 * created;
  if (expected + freed_ <= enough || next_.valid()) return;
  const int64_t slots = SlotsNeeded(expected);
  if (IndexBytes(kind_, slots) < kWorthAThread) return;
  try {
    next_ = std::async(std::launch::async, [this, slots] { return Make(slots); });
  } catch (const std::system_error&) {
    // No thread to be had: the index will be made when it is needed.
  }
}

void GrowingIndex::AdoptAhead() {
  Result<IndexAhead> made = next_.get();
  // Where there was no room for it, its time has not come: the old one is not full yet, or Build()
  // will say so.
  if (made.ok()) Publish(made.Take());
  notes_.clear();
}

void GrowingIndex::DropAhead() {
  if (!next_.valid()) return;
  notes_.clear();
  if (next_.get().ok()) unlink(page_->paths().Index(generation() + 1).c_str());
}

}  // namespace tfhybrid
