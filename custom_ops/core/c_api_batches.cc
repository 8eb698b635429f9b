#include "core/c_api_batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/c_api_guard.h"
#include "core/c_api_socket.h"
#include "core/compute/unique_keys.h"
#include "core/engine/engine_registry.h"
#include "core/placement/key_handle.h"
#include "core/store/layout.h"

using tfhybrid::Allocation, tfhybrid::BatchKeys, tfhybrid::Engine, tfhybrid::KeyHandle,
    tfhybrid::OfferedSocket, tfhybrid::PlacementKind, tfhybrid::RowRead, tfhybrid::Status,
    tfhybrid::StatusCode, tfhybrid::WithEngine;

namespace {

static_assert(TFHYBRID_TABLE_NAME_BYTES == tfhybrid::kMaxTableName);

Status CheckHosts(int64_t first_owner, int64_t hosts, int64_t owner, int64_t ticket) {
  const bool good = 0 <= first_owner && first_owner < hosts && hosts <= Allocation::kSlots &&
                    0 <= owner && owner < hosts - first_owner && 0 <= ticket &&
                    ticket < KeyHandle::kTickets;
  if (good) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "Key handles name one of ", Allocation::kSlots,
                       " hosts and one of ", KeyHandle::kTickets, " tickets. Received: owners ",
                       first_owner, " to ", hosts - 1, ", owner ", owner, ", ticket ", ticket);
}

// Distinct keys, owner by owner, and where each of them is.
class OwnedKeys {
 public:
  void Number(const Allocation& allocation, int64_t first_owner, int parts, const int64_t* counts,
              const int64_t* const* keys, int64_t* const* numbers) {
    unique_.Reset(std::accumulate(counts, counts + parts, int64_t{0}));
    for (int p = 0; p < parts; ++p) unique_.Number({keys[p], counts[p]}, numbers[p]);
    owned_.assign(static_cast<size_t>(allocation.nodes() - first_owner), 0);
    for (const int64_t key : unique_.keys()) {
      const int64_t owner = allocation.OwnerOf(key);
      owners_.push_back(owner);
      indexes_.push_back(owned_[static_cast<size_t>(owner - first_owner)]++);
    }
  }
  Status Check() const {
    const int64_t largest = *std::max_element(owned_.begin(), owned_.end());
    if (largest <= KeyHandle::kMaxKeys) return Status::Ok();
    return Status::Error(StatusCode::kInvalidArgument, "A batch has ", KeyHandle::kMaxKeys,
                         " keys at most of a table on a node. Received: ", largest);
  }
  int64_t HandleOf(int64_t number, int64_t ticket) const {
    const auto at = static_cast<size_t>(number);
    return KeyHandle{ticket, owners_[at], indexes_[at]}.Word();
  }
  void Write(int64_t first_owner, int64_t* distinct, int64_t* owned) const {
    std::copy(owned_.begin(), owned_.end(), owned);
    std::vector<int64_t> starts(owned_.size() + 1, 0);
    std::partial_sum(owned_.begin(), owned_.end(), starts.begin() + 1);
    for (size_t i = 0; i < owners_.size(); ++i) {
      const int64_t start = starts[static_cast<size_t>(owners_[i] - first_owner)];
      distinct[start + indexes_[i]] = unique_.keys()[static_cast<int64_t>(i)];
    }
  }

 private:
  tfhybrid::UniqueKeys unique_;
  std::vector<int64_t> owners_, indexes_;  // of each key
  std::vector<int64_t> owned_;             // keys by owner
};

std::map<std::string, uint64_t> VersionsOf(int tables, const char* const* names,
                                           const uint64_t* versions) {
  std::map<std::string, uint64_t> found;
  for (int t = 0; t < tables; ++t) found[names[t]] = versions[t];
  return found;
}

}  // namespace

int tfhybrid_key_handles_make(const char* table, uint32_t placement, int64_t owner,
                              int64_t first_owner, int64_t hosts, int64_t ticket, int parts,
                              const int64_t* counts, const int64_t* const* keys,
                              int64_t* const* handles, int64_t* distinct, int64_t* owned) {
  return tfhybrid::Guarded([&]() -> Status {
    TFHYBRID_RETURN_IF_ERROR(CheckHosts(first_owner, hosts, owner, ticket));
    const auto allocation = static_cast<PlacementKind>(placement) == PlacementKind::kWhole
                                ? Allocation::Whole(table, hosts, first_owner + owner)
                                : Allocation::Even(table, hosts, first_owner);
    OwnedKeys split;
    split.Number(*allocation, first_owner, parts, counts, keys, handles);
    TFHYBRID_RETURN_IF_ERROR(split.Check());
    for (int p = 0; p < parts; ++p) {
      for (int64_t i = 0; i < counts[p]; ++i) handles[p][i] = split.HandleOf(handles[p][i], ticket);
    }
    split.Write(first_owner, distinct, owned);
    return Status::Ok();
  });
}

int tfhybrid_key_handles_use(int64_t engine) {
  return WithEngine(engine, [](Engine* its) { its->batches().UseKeyHandles(); });
}

int tfhybrid_key_handles_lookup(int64_t engine, int outside, int tables, const char* const* names,
                                const int64_t* counts, const int64_t* const* handles,
                                float* const* embeddings) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    std::vector<tfhybrid::FeatureRead> reads;
    for (int t = 0; t < tables; ++t) {
      TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<tfhybrid::OpenTable> table,
                                its->tables().Get(names[t]));
      const uint64_t posted = table->posted;
      const uint64_t staleness = its->batches().received().StalenessOf({handles[t], counts[t]});
      TFHYBRID_RETURN_IF_ERROR(its->WaitForVersion(*table, posted - std::min(posted, staleness)));
      reads.push_back({table,
                       its->tables().AllocationOf(names[t]),
                       {handles[t], counts[t]},
                       true,
                       outside != 0});
      if (reads.back().allocation != nullptr) continue;
      return Status::Error(StatusCode::kFailedPrecondition, "Table '", names[t],
                           "' lies on this host: it has no key handles");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const auto fetched, its->owners().Fetch(reads, tfhybrid::RunInline));
    for (size_t t = 0; t < reads.size(); ++t) {
      const auto array = tfhybrid::RowLayout::Array(reads[t].table->reader->dim());
      fetched->Lookup(t, 0, reads[t].keys.size(),
                      tfhybrid::RowCursor<float>(embeddings[t], array, 0));
    }
    return Status::Ok();
  });
}

int tfhybrid_key_handles_looked_up(int64_t engine, int64_t room, int64_t* tickets,
                                   int64_t* tickets_count) {
  return WithEngine(engine, [&](Engine* its) {
    tfhybrid::CopyOut(its->batches().TakeLookedUp(room), tickets, room, tickets_count);
  });
}

int tfhybrid_key_handles_reads(int64_t engine, int64_t room, char* tables, int64_t* numbers,
                               int64_t* count) {
  return WithEngine(engine, [&](Engine* its) {
    const std::vector<RowRead> reads = its->batches().TakeReads(room);
    for (size_t i = 0; i < reads.size(); ++i) {
      const RowRead& read = reads[i];
      char* const name = tables + i * TFHYBRID_TABLE_NAME_BYTES;
      std::fill_n(name, TFHYBRID_TABLE_NAME_BYTES, '\0');
      read.table.copy(name, TFHYBRID_TABLE_NAME_BYTES);
      const int64_t of_read[] = {read.ticket, read.owner, static_cast<int64_t>(read.posted),
                                 static_cast<int64_t>(read.version)};
      std::copy(std::begin(of_read), std::end(of_read), numbers + i * std::size(of_read));
    }
    *count = static_cast<int64_t>(reads.size());
  });
}

int tfhybrid_batch_put(int64_t engine, int64_t ticket, const char* id, const char* digest,
                       int64_t rank, int trains, uint64_t staleness, int tables,
                       const char* const* names, const int64_t* counts,
                       const int64_t* const* keys) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    BatchKeys::Batch batch = {id, digest, rank, trains != 0, staleness, {}};
    for (int t = 0; t < tables; ++t) batch.keys[names[t]].assign(keys[t], keys[t] + counts[t]);
    return its->batches().keys().Put(ticket, std::move(batch));
  });
}

int tfhybrid_batch_drop(int64_t engine, int64_t count, const int64_t* tickets) {
  return WithEngine(engine, [&](Engine* its) {
    for (int64_t i = 0; i < count; ++i) its->batches().keys().Drop(tickets[i]);
  });
}

int tfhybrid_batches_held(int64_t engine, int64_t* batches, int64_t* bytes) {
  return WithEngine(engine, [&](Engine* its) {
    const BatchKeys::HeldBatches held = its->batches().keys().held();
    *batches = held.batches;
    *bytes = held.bytes;
  });
}

int tfhybrid_batches_copy(int64_t engine, int64_t room, int64_t* words, int64_t* size) {
  return WithEngine(engine, [&](Engine* its) {
    const std::vector<int64_t> all = its->batches().keys().Words();
    *size = static_cast<int64_t>(all.size());
    if (*size <= room) std::copy(all.begin(), all.end(), words);
  });
}

int tfhybrid_batches_put(int64_t engine, int64_t size, const int64_t* words) {
  return WithEngine(engine,
                    [&](Engine* its) { return its->batches().keys().PutAll({words, size}); });
}

int tfhybrid_rows_send(int64_t engine, int64_t rank, int socket, const char* peer) {
  OfferedSocket offered(socket);
  return WithEngine(engine, [&](Engine* its) {
    its->batches().sender().Add(rank, its->Adopt(offered.Take(), peer));
  });
}

int tfhybrid_rows_receive(int64_t engine, int64_t owner, int socket, const char* peer) {
  OfferedSocket offered(socket);
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->owners().links().CheckOther(owner));
    its->batches().received().Add(owner, its->Adopt(offered.Take(), peer));
    return Status::Ok();
  });
}

int tfhybrid_batch_send(int64_t engine, int64_t rank, int64_t ticket, int tables,
                        const char* const* names, const uint64_t* versions) {
  return WithEngine(engine, [&](Engine* its) {
    its->batches().sender().Announce(rank, ticket, VersionsOf(tables, names, versions));
  });
}

int tfhybrid_batch_expect(int64_t engine, int64_t ticket, uint64_t staleness, int tables,
                          const char* const* names, const uint64_t* versions) {
  return WithEngine(engine, [&](Engine* its) {
    its->batches().received().Expect(ticket, VersionsOf(tables, names, versions), staleness);
  });
}

int tfhybrid_batches_ask(int64_t engine) {
  return WithEngine(engine, [&](Engine* its) { its->batches().received().ExpectNone(); });
}

int tfhybrid_batch_forget(int64_t engine, int64_t count, const int64_t* tickets) {
  return WithEngine(engine,
                    [&](Engine* its) { its->batches().received().Forget({tickets, count}); });
}
