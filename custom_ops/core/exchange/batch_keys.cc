#include "core/exchange/batch_keys.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/placement/key_handle.h"
#include "core/util/words.h"

namespace tfhybrid {

int64_t BatchKeys::Batch::Bytes() const {
  int64_t bytes = 0;
  for (const auto& [table, of_table] : keys) {
    bytes += static_cast<int64_t>(of_table.size() * sizeof(int64_t));
  }
  return bytes;
}

Status BatchKeys::Put(int64_t ticket, Batch batch) {
  if (ticket < 0 || ticket >= KeyHandle::kTickets) {
    return Status::Error(StatusCode::kInvalidArgument, "A ticket is 0 to ", KeyHandle::kTickets - 1,
                         ". Received: ", ticket);
  }
  const int64_t bytes = batch.Bytes();
  const MutexLock guard(mutex_);
  const auto known = batches_.find(ticket);
  if (known == batches_.end()) {
    batches_[ticket] = std::make_shared<const Batch>(std::move(batch));
    bytes_ += bytes;
    return Status::Ok();
  }
  const Batch& here = *known->second;
  if (here.id != batch.id) {
    return Status::Error(StatusCode::kAlreadyExists, "Ticket ", ticket, " is of batch ", here.id,
                         ". Received: batch ", batch.id);
  }
  if (here.digest == batch.digest && here.keys == batch.keys) return Status::Ok();
  return Status::Error(StatusCode::kAlreadyExists, "Batch ", here.id, " has the digest ",
                       here.digest,
                       ", and must be the same when it is read again. Received: ", batch.digest);
}

void BatchKeys::Drop(int64_t ticket) {
  const MutexLock guard(mutex_);
  const auto found = batches_.find(ticket);
  if (found == batches_.end()) return;
  bytes_ -= found->second->Bytes();
  batches_.erase(found);
}

BatchKeys::HeldBatches BatchKeys::held() const {
  const MutexLock guard(mutex_);
  return {static_cast<int64_t>(batches_.size()), bytes_};
}

std::vector<int64_t> BatchKeys::Words() const {
  const MutexLock guard(mutex_);
  WordWriter out;
  for (const auto& [ticket, batch] : batches_) {
    out.Put(ticket, batch->id, batch->digest, batch->rank, batch->trains ? 1 : 0,
            static_cast<int64_t>(batch->staleness), static_cast<int64_t>(batch->keys.size()));
    for (const auto& [table, of_table] : batch->keys) {
      out.Put(table, of_table);
    }
  }
  return out.Take();
}

Status BatchKeys::PutAll(Span<const int64_t> words) {
  WordReader in(words);
  while (!in.done()) {
    Batch batch = {};
    int64_t ticket = 0, trains = 0, staleness = 0, tables = 0;
    TFHYBRID_RETURN_IF_ERROR(
        in.Get(&ticket, &batch.id, &batch.digest, &batch.rank, &trains, &staleness, &tables));
    batch.trains = trains != 0;
    batch.staleness = static_cast<uint64_t>(staleness);
    for (int64_t t = 0; t < tables; ++t) {
      std::string table;
      TFHYBRID_RETURN_IF_ERROR(in.Get(&table));
      TFHYBRID_RETURN_IF_ERROR(in.Get(&batch.keys[table]));
    }
    TFHYBRID_RETURN_IF_ERROR(Put(ticket, std::move(batch)));
  }
  return Status::Ok();
}

std::shared_ptr<const BatchKeys::Batch> BatchKeys::Of(int64_t ticket) const {
  const MutexLock guard(mutex_);
  const auto found = batches_.find(ticket);
  return found == batches_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<const BatchKeys::Batch>> BatchKeys::Get(int64_t ticket) const {
  std::shared_ptr<const Batch> batch = Of(ticket);
  if (batch != nullptr) return batch;
  return Status::Error(StatusCode::kNotFound, "The batch with ticket ", ticket,
                       " is not here: it was dropped, or its data node did not send it. Does "
                       "something behind the data set keep batches back?");
}

Result<uint64_t> BatchKeys::Find(const std::string& table, Span<const int64_t> handles,
                                 int64_t* keys) const {
  uint64_t staleness = handles.empty() ? 0 : std::numeric_limits<uint64_t>::max();
  std::shared_ptr<const Batch> batch;
  const std::vector<int64_t>* of_table = nullptr;
  int64_t ticket = -1;
  for (int64_t i = 0; i < handles.size(); ++i) {
    const KeyHandle handle = KeyHandle::Of(handles[i]);
    if (!KeyHandle::Is(handles[i]) || handle.owner != owner_) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", table,
                           "' is asked for key handles ", "that host ", owner_,
                           " owns. Received: ", handles[i]);
    }
    if (handle.ticket != ticket) {
      TFHYBRID_ASSIGN_OR_RETURN(batch, Get(handle.ticket));
      const auto found = batch->keys.find(table);
      of_table = found == batch->keys.end() ? nullptr : &found->second;
      ticket = handle.ticket;
      staleness = std::min(staleness, batch->staleness);
    }
    const int64_t count = of_table == nullptr ? 0 : static_cast<int64_t>(of_table->size());
    if (handle.index >= count) {
      return Status::Error(StatusCode::kInvalidArgument, "Batch ", batch->id, " has ", count,
                           " keys of table '", table, "' here. Received: key handle ",
                           handle.index);
    }
    keys[i] = (*of_table)[static_cast<size_t>(handle.index)];
  }
  return staleness;
}

}  // namespace tfhybrid
