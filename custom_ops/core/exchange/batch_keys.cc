#include "core/exchange/batch_keys.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/compute/merged_keys.h"
#include "core/placement/key_handle.h"
#include "core/util/copy_floats.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

// Consecutive keys of a message that are of one batch.
struct Run {
  int64_t rank, ticket;
  bool trains;
  int64_t begin, end;
};

std::vector<Run> RunsOf(Span<const int64_t> handles) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < handles.size(); ++i) {
    const int64_t ticket = KeyHandle::Of(handles[i]).ticket;
    if (runs.empty() || runs.back().ticket != ticket) runs.push_back({0, ticket, true, i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

// Counts a key that several batches of a rank have once: in the first of them.
std::vector<uint16_t> RanksOf(const std::vector<Run>& runs, Span<const int64_t> keys) {
  std::vector<uint16_t> ranks(static_cast<size_t>(keys.size()), 1);
  UniqueKeys seen;
  for (size_t first = 0; first < runs.size();) {
    size_t last = first;
    int64_t count = 0;
    while (last < runs.size() && runs[last].rank == runs[first].rank) {
      count += runs[last].end - runs[last].begin;
      ++last;
    }
    const bool one_batch = runs[last - 1].ticket == runs[first].ticket;
    if (!one_batch) seen.Reset(count);
    for (size_t r = first; r < last && !one_batch; ++r) {
      for (int64_t i = runs[r].begin; i < runs[r].end; ++i) {
        const int64_t before = seen.size();
        ranks[static_cast<size_t>(i)] = seen.Number(keys[i]) == before ? 1 : 0;
      }
    }
    first = last;
  }
  return ranks;
}

// A table of a message, with keys.
struct TableKeys {
  std::vector<int64_t> keys;    // of each key handle
  std::vector<uint16_t> ranks;  // likewise
  MergedKeys merged;
};

void Merge(const std::vector<Run>& runs, const float* gradients, int64_t dim, TableKeys* table) {
  table->ranks = RanksOf(runs, table->keys);
  std::vector<RankGradients> parts;
  parts.reserve(runs.size());
  for (const Run& run : runs) {
    // Sums within a rank come first, as those within a host do elsewhere.
    parts.push_back({Span<const int64_t>(table->keys.data() + run.begin, run.end - run.begin),
                     gradients + run.begin * dim, run.rank, table->ranks.data() + run.begin});
  }
  table->merged.Merge(parts, dim);
}

void Fill(const TableKeys& from, int64_t dim, int64_t table, const MessageBuilder& to) {
  std::vector<float> scratch(static_cast<size_t>(MergedKeys::ScratchFloats(dim)));
  const Span<const int64_t> keys = from.merged.keys();
  for (int64_t i = 0; i < keys.size(); ++i) {
    to.keys(table)[i] = keys[i];
    to.ranks(table)[i] = static_cast<uint16_t>(from.merged.Count(i));
    CopyFloats(from.merged.Sum(i, scratch.data()), dim, to.gradients(table) + i * dim);
  }
}

}  // namespace

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

Status BatchKeys::CheckTrained(const Batch& batch, const Batch& first, const std::string& table) {
  if (!batch.trains) {
    return Status::Error(StatusCode::kFailedPrecondition, "Batch ", batch.id,
                         " is for evaluation. Received: an update of table '", table, "'");
  }
  if (batch.staleness == first.staleness) return Status::Ok();
  return Status::Error(
      StatusCode::kInvalidArgument,
      "All trainers must have the same staleness. Received: staleness=", first.staleness,
      " of batch ", first.id, ", staleness=", batch.staleness, " of batch ", batch.id);
}

Status BatchKeys::Translate(const MessageSchema& schema, const GradientMessage& message,
                            std::shared_ptr<const Batch>* first,
                            std::vector<int64_t>* words) const {
  std::vector<TableKeys> tables(schema.tables.size());
  std::vector<int64_t> counts;
  for (size_t t = 0; t < tables.size(); ++t) {
    const Span<const int64_t> handles = message.keys[t];
    tables[t].keys.resize(static_cast<size_t>(handles.size()));
    TFHYBRID_RETURN_IF_ERROR(Find(schema.tables[t], handles, tables[t].keys.data()).status());
    std::vector<Run> runs = RunsOf(handles);
    for (Run& run : runs) {
      TFHYBRID_ASSIGN_OR_RETURN(const auto batch, Get(run.ticket));
      if (*first == nullptr) *first = batch;
      TFHYBRID_RETURN_IF_ERROR(CheckTrained(*batch, **first, schema.tables[t]));
      run.rank = batch->rank;
    }
    std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
      return a.rank != b.rank ? a.rank < b.rank : KeyHandle::Before(a.ticket, b.ticket);
    });
    Merge(runs, message.gradients[t], schema.dims[t], &tables[t]);
    counts.push_back(tables[t].merged.keys().size());
  }
  const auto at = static_cast<int64_t>(words->size());
  const int64_t size = MessageWords(schema, counts, kOfHost);
  words->resize(static_cast<size_t>(at + size));
  const MessageBuilder to(schema, counts, Span<int64_t>(words->data() + at, size), kOfHost);
  to.header()->samples = message.header.samples;
  to.header()->skip = message.header.skip;
  to.header()->room = message.header.room;
  to.header()->event_time = message.header.event_time;
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto table = static_cast<int64_t>(t);
    *to.room(table) = message.room[t];
    Fill(tables[t], schema.dims[t], table, to);
  }
  return Status::Ok();
}

Status BatchKeys::ToKeys(const MessageSchema& schema, Span<const int64_t> messages, int64_t sources,
                         std::vector<int64_t>* words) const {
  words->clear();
  TFHYBRID_ASSIGN_OR_RETURN(std::vector<GradientMessage> parsed,
                            ParseMessages(schema, messages, sources));
  const bool has_handles =
      std::any_of(parsed.begin(), parsed.end(),
                  [](const GradientMessage& each) { return (each.header.form & kOfHandles) != 0; });
  if (!has_handles) return Status::Ok();
  TFHYBRID_RETURN_IF_ERROR(FailureOf(parsed));
  std::vector<int64_t> widened(static_cast<size_t>(WidenedWords(schema, parsed)));
  Widen(schema, parsed, widened);
  TFHYBRID_ASSIGN_OR_RETURN(parsed, ParseMessages(schema, widened, sources));
  std::shared_ptr<const Batch> first;
  for (const GradientMessage& message : parsed) {
    TFHYBRID_RETURN_IF_ERROR(Translate(schema, message, &first, words));
  }
  return Status::Ok();
}

}  // namespace tfhybrid
