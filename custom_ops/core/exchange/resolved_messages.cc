#include "core/exchange/resolved_messages.h"

#include <algorithm>
#include <memory>
#include <string>

#include "core/compute/bfloat16.h"
#include "core/placement/key_handle.h"
#include "core/util/copy_floats.h"

namespace tfhybrid {
namespace {

// Rough costs in nanoseconds, for the size of the pieces that threads take.
constexpr int64_t kResolveCostNs = 40;
constexpr int64_t kFillCostNs = 30;

// Consecutive keys of a message that are of one batch.
struct Run {
  int64_t rank, ticket;
  int64_t begin, end;
};

std::vector<Run> RunsOf(Span<const int64_t> handles) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < handles.size(); ++i) {
    const int64_t ticket = KeyHandle::Of(handles[i]).ticket;
    if (runs.empty() || runs.back().ticket != ticket) runs.push_back({0, ticket, i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

// Counts a key that several batches of a rank have once: in the first of them.
void CountRanks(const std::vector<Run>& runs, Span<const int64_t> keys,
                std::vector<uint16_t>* ranks) {
  ranks->assign(static_cast<size_t>(keys.size()), 1);
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
        (*ranks)[static_cast<size_t>(i)] = seen.Number(keys[i]) == before ? 1 : 0;
      }
    }
    first = last;
  }
}

Status CheckTrained(const BatchKeys::Batch& batch, const BatchKeys::Batch& first,
                    const std::string& table) {
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

// The batch of the first key handle, or null.
Result<std::shared_ptr<const BatchKeys::Batch>> FirstBatch(
    const BatchKeys& held, const std::vector<GradientMessage>& messages) {
  for (const GradientMessage& message : messages) {
    for (const Span<const int64_t>& handles : message.keys) {
      if (handles.empty() || !KeyHandle::Is(handles[0])) continue;
      return held.Get(KeyHandle::Of(handles[0]).ticket);
    }
  }
  return std::shared_ptr<const BatchKeys::Batch>();
}

int64_t KeysOf(const std::vector<GradientMessage>& messages) {
  int64_t keys = 0;
  for (const GradientMessage& message : messages) {
    for (const Span<const int64_t>& of_table : message.keys) keys += of_table.size();
  }
  return keys;
}

}  // namespace

Status ResolvedMessages::ResolveTable(const BatchKeys& held, const MessageSchema& schema,
                                      const GradientMessage& message, size_t table,
                                      const BatchKeys::Batch* first, Table* of) {
  const Span<const int64_t> handles = message.keys[table];
  const std::string& name = schema.tables[table];
  const int64_t dim = schema.dims[table];
  of->keys.resize(static_cast<size_t>(handles.size()));
  TFHYBRID_RETURN_IF_ERROR(held.Find(name, handles, of->keys.data()).status());
  std::vector<Run> runs = RunsOf(handles);
  for (Run& run : runs) {
    TFHYBRID_ASSIGN_OR_RETURN(const auto batch, held.Get(run.ticket));
    TFHYBRID_RETURN_IF_ERROR(CheckTrained(*batch, *first, name));
    run.rank = batch->rank;
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return a.rank != b.rank ? a.rank < b.rank : KeyHandle::Before(a.ticket, b.ticket);
  });
  CountRanks(runs, of->keys, &of->ranks);
  const float* gradients = message.gradients[table];
  if (message.rounded[table] != nullptr) {
    of->widened.resize(of->keys.size() * static_cast<size_t>(dim));
    FromBfloat16(message.rounded[table], handles.size() * dim, of->widened.data());
    gradients = of->widened.data();
  }
  std::vector<RankGradients> parts;
  parts.reserve(runs.size());
  for (const Run& run : runs) {
    // Sums within a rank come first, as those within a host do elsewhere.
    parts.push_back({Span<const int64_t>(of->keys.data() + run.begin, run.end - run.begin),
                     gradients + run.begin * dim, run.rank, of->ranks.data() + run.begin});
  }
  of->merged.Merge(parts, dim);
  return Status::Ok();
}

Status ResolvedMessages::Resolve(const BatchKeys& held, const MessageSchema& schema,
                                 const std::vector<GradientMessage>& messages,
                                 const ParallelFor& parallel_for) {
  const size_t tables = schema.tables.size();
  tables_.resize(messages.size() * tables);
  TFHYBRID_ASSIGN_OR_RETURN(const auto first, FirstBatch(held, messages));
  const auto count = static_cast<int64_t>(tables_.size());
  const int64_t cost = kResolveCostNs * (KeysOf(messages) / count + 1);
  return RunParts(parallel_for, count, cost, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      TFHYBRID_RETURN_IF_ERROR(
          ResolveTable(held, schema, messages[t / tables], t % tables, first.get(), &tables_[t]));
    }
    return Status::Ok();
  });
}

std::vector<int64_t> ResolvedMessages::CountsOf(const MessageSchema& schema, size_t message) const {
  std::vector<int64_t> counts;
  counts.reserve(schema.tables.size());
  for (size_t t = 0; t < schema.tables.size(); ++t) {
    counts.push_back(tables_[message * schema.tables.size() + t].merged.keys().size());
  }
  return counts;
}

int64_t ResolvedMessages::Words(const MessageSchema& schema) const {
  int64_t words = 0;
  for (size_t m = 0; m * schema.tables.size() < tables_.size(); ++m) {
    const std::vector<int64_t> counts = CountsOf(schema, m);
    words += MessageWords(schema, counts, kOfHost);
  }
  return words;
}

void ResolvedMessages::FillTable(const Table& from, int64_t dim, int64_t table,
                                 const MessageBuilder& to) {
  std::vector<float> scratch(static_cast<size_t>(MergedKeys::ScratchFloats(dim)));
  const Span<const int64_t> keys = from.merged.keys();
  for (int64_t i = 0; i < keys.size(); ++i) {
    to.keys(table)[i] = keys[i];
    to.ranks(table)[i] = static_cast<uint16_t>(from.merged.Count(i));
    CopyFloats(from.merged.Sum(i, scratch.data()), dim, to.gradients(table) + i * dim);
  }
}

void ResolvedMessages::Fill(const MessageSchema& schema,
                            const std::vector<GradientMessage>& messages, Span<int64_t> words,
                            const ParallelFor& parallel_for) const {
  std::vector<MessageBuilder> builders;
  int64_t at = 0;
  for (size_t m = 0; m < messages.size(); ++m) {
    const std::vector<int64_t> counts = CountsOf(schema, m);
    const int64_t size = MessageWords(schema, counts, kOfHost);
    builders.emplace_back(schema, counts, words.subspan(at, size), kOfHost);
    at += size;
    MessageHeader* const header = builders.back().header();
    header->samples = messages[m].header.samples;
    header->skip = messages[m].header.skip;
    header->room = messages[m].header.room;
    header->event_time = messages[m].header.event_time;
    for (size_t t = 0; t < schema.tables.size(); ++t) {
      *builders.back().room(static_cast<int64_t>(t)) = messages[m].room[t];
    }
  }
  const size_t tables = schema.tables.size();
  const auto count = static_cast<int64_t>(tables_.size());
  const int64_t cost = kFillCostNs * (KeysOf(messages) / count + 1);
  parallel_for(count, cost, [&](int64_t begin, int64_t end) {
    for (auto t = static_cast<size_t>(begin); t < static_cast<size_t>(end); ++t) {
      FillTable(tables_[t], schema.dims[t % tables], static_cast<int64_t>(t % tables),
                builders[t / tables]);
    }
  });
}

}  // namespace tfhybrid
