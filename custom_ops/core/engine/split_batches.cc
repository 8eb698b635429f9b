#include "core/engine/split_batches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/placement/key_handle.h"

namespace tfhybrid {
namespace {

template <typename Queue>
std::vector<typename Queue::value_type> TakeFirst(Queue* queue, int64_t max_count) {
  const auto size = static_cast<int64_t>(queue->size());
  const auto end = std::next(queue->begin(), std::clamp<int64_t>(max_count, 0, size));
  std::vector<typename Queue::value_type> first(std::make_move_iterator(queue->begin()),
                                                std::make_move_iterator(end));
  queue->erase(queue->begin(), end);
  return first;
}

}  // namespace

Status SplitBatches::Check(const std::vector<KeyGradients>& batch) const {
  const Topology& topology = tables_->topology();
  for (const KeyGradients& table : batch) {
    for (const int64_t key : table.keys) {
      const int64_t owner = KeyHandle::OwnerOf(key);
      if (KeyHandle::Is(key) && owner >= topology.FirstOwner() && owner < topology.Hosts())
        continue;
      return Status::Error(StatusCode::kInvalidArgument,
                           "An update is of batches that data nodes sent, since they send this "
                           "job's batches. Received: key ",
                           key);
    }
  }
  return Status::Ok();
}

void SplitBatches::CountLookup(const FetchedRows& fetched) {
  const std::vector<int64_t> tickets = fetched.Tickets();
  if (tickets.empty()) return;
  const MutexLock guard(mutex_);
  looked_up_.insert(tickets.begin(), tickets.end());
  for (RowRead& read : fetched.Reads()) reads_.push_back(std::move(read));
}

std::vector<int64_t> SplitBatches::TakeLookedUp(int64_t max_count) {
  const MutexLock guard(mutex_);
  return TakeFirst(&looked_up_, max_count);
}

std::vector<RowRead> SplitBatches::TakeReads(int64_t max_count) {
  const MutexLock guard(mutex_);
  return TakeFirst(&reads_, max_count);
}

}  // namespace tfhybrid
