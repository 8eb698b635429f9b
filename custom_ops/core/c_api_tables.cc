// The C interface of tables.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/checkpoint/record_file.h"
#include "core/checkpoint/table_file.h"
#include "core/engine/engine_registry.h"
#include "core/engine/worker_threads.h"
#include "core/store/key_index.h"
#include "core/store/table_digest.h"
#include "core/store/table_loader.h"
#include "core/util/mutex.h"
#include "core/util/parallel.h"

namespace tfhybrid {
namespace {

// Like Guarded, for a body that needs the table with that name, and its engine.
template <typename Body>
int WithTable(int64_t engine, const char* name, const Body& body) {
  return Guarded([&]() -> Status {
    const std::string wanted = name;
    const Result<std::shared_ptr<Engine>> its = EngineOf(engine);
    if (!its.ok()) {
      return Status::Error(its.status().code(), its.status().message(), ", wanted for table '",
                           wanted, "'");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const auto table, its.value()->tables().Get(wanted));
    return StatusOf(body, its.value().get(), table.get());
  });
}

// Like WithTable, after the table has the updates in which this rank has taken part.
template <typename Body>
int WithDoneTable(int64_t engine, const char* name, const Body& body) {
  return WithTable(engine, name, [&](const Engine* its, OpenTable* table) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->WaitUntilDone(*table, table->posted));
    return StatusOf(body, table);
  });
}

// Like WithDoneTable, for a body that needs the writer, which is held during the call.
template <typename Body>
int WithWriter(int64_t engine, const char* name, const Body& body) {
  return WithTable(engine, name, [&](const Engine* its, OpenTable* table) -> Status {
    if (table->writer == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition,
                           "Only the leader (local rank 0) writes ", "table '", name, "'");
    }
    TFHYBRID_RETURN_IF_ERROR(its->WaitUntilDone(*table, table->posted));
    const MutexLock guard(table->writing);
    return StatusOf(body, table->writer.get());
  });
}

// Each fills a part of the index.
constexpr int kLoadingThreads = KeyIndex::kParts;
// Fewer rows are written before threads have started.
constexpr int64_t kWorthThreads = 1 << 15;

// Threads to load so many rows with; the other ranks wait meanwhile.
int ThreadsToLoad(int64_t rows) {
  return rows < kWorthThreads ? 1 : std::min(kLoadingThreads, AllowedProcessors());
}

Status CheckLeads(const OpenTable& table) {
  if (table.writer != nullptr) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition,
                       "Only the leader (local rank 0) sees optimizer state and histories");
}

}  // namespace
}  // namespace tfhybrid

using tfhybrid::CheckLeads, tfhybrid::Engine, tfhybrid::FrozenTable, tfhybrid::MutexLock,
    tfhybrid::ThreadsToLoad, tfhybrid::WorkerThreads, tfhybrid::OpenTable, tfhybrid::RowHistory,
    tfhybrid::RunInline, tfhybrid::Span, tfhybrid::Status, tfhybrid::StatusCode,
    tfhybrid::TableLoader, tfhybrid::TableWriter, tfhybrid::WithDoneTable, tfhybrid::WithEngine,
    tfhybrid::WithTable, tfhybrid::WithWriter, tfhybrid::WriteTo;

int tfhybrid_table_open(int64_t engine, const tfhybrid_table_config* config, int timeout_ms) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    const tfhybrid::Initializer initializer = {
        static_cast<tfhybrid::InitializerKind>(config->initializer), config->initializer_a,
        config->initializer_b};
    const tfhybrid_row_policy& policy = config->policy;
    const tfhybrid::RowPolicy rows = {static_cast<tfhybrid::PolicyKind>(policy.kind),
                                      policy.admission,
                                      policy.slices_log2,
                                      policy.frequent_stay,
                                      policy.unseen_steps,
                                      policy.unseen_time,
                                      policy.half_life,
                                      policy.min_frequency,
                                      policy.min_norm,
                                      policy.max_rows,
                                      policy.waiting_steps};
    return its->tables().Open(
        {config->name,
         config->dim,
         initializer,
         config->job_seed,
         rows,
         {},
         config->files == nullptr ? "" : config->files,
         config->cache_bytes},
        {static_cast<tfhybrid::PlacementKind>(config->placement), config->owner}, timeout_ms);
  });
}

int tfhybrid_table_set_optimizer(int64_t engine, const char* table,
                                 const tfhybrid_optimizer_config* config) {
  return WithWriter(engine, table, [&](TableWriter* writer) {
    return writer->SetOptimizer({static_cast<tfhybrid::OptimizerKind>(config->kind),
                                 config->initial_accumulator_value, config->epsilon, config->flags,
                                 config->beta_1, config->beta_2, config->momentum, config->rho,
                                 config->l1, config->l2, config->l2_shrinkage, config->beta,
                                 config->weight_decay, config->penalty_l1, config->penalty_l2});
  });
}

int tfhybrid_table_forget_optimizer(int64_t engine, const char* table) {
  return WithTable(engine, table,
                   [&](Engine* its, OpenTable* open) { return its->ForgetOptimizer(open); });
}

int tfhybrid_table_optimizer_start(int64_t engine, const char* table, uint64_t* version) {
  return WithWriter(engine, table,
                    [&](TableWriter* writer) { *version = writer->page().optimizer_start(); });
}

int tfhybrid_table_stats_get(int64_t engine, const char* table, tfhybrid_table_stats* stats) {
  return WithDoneTable(engine, table, [&](OpenTable* open) {
    const tfhybrid::TableStats found = open->reader->Stats();
    *stats = {found.rows,          found.version,         found.chunks,
              found.index_slots,   found.embedding_bytes, found.state_bytes,
              found.history_bytes, found.index_bytes,     found.bytes,
              found.file_bytes,    found.cache_bytes,     found.cache_hits,
              found.cache_misses,  found.written_rows,    found.evicted,
              open->keys,          open->distinct_keys};
  });
}

int tfhybrid_table_count_nan(int64_t engine, const char* table, int64_t* rows) {
  return WithDoneTable(
      engine, table, [&](OpenTable* open) { return WriteTo(rows, open->reader->CountNanRows()); });
}

int tfhybrid_table_digest(int64_t engine, const char* table, uint64_t* digest) {
  return WithDoneTable(
      engine, table, [&](OpenTable* open) { return WriteTo(digest, tfhybrid::TableDigest(open)); });
}

namespace {

int LookupIn(int64_t engine, const char* table, bool outside, int64_t count, const int64_t* keys,
             float* embeddings) {
  return WithTable(engine, table, [&](Engine* its, OpenTable* open) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->WaitUntilDone(*open, open->posted));
    const auto allocation = its->tables().AllocationOf(table);
    const Span<const int64_t> wanted(keys, count);
    if (allocation == nullptr) {
      return open->reader->Lookup(wanted, embeddings, open->Unseen(outside));
    }
    TFHYBRID_ASSIGN_OR_RETURN(const auto held, its->tables().Get(table));
    TFHYBRID_ASSIGN_OR_RETURN(
        const auto fetched,
        its->owners().Fetch({{held, allocation, wanted, false, outside}}, RunInline));
    const auto array = tfhybrid::RowLayout::Array(open->reader->dim());
    fetched->Lookup(0, 0, count, tfhybrid::RowCursor<float>(embeddings, array, 0));
    return Status::Ok();
  });
}

}  // namespace

int tfhybrid_table_lookup(int64_t engine, const char* table, int64_t count, const int64_t* keys,
                          float* embeddings) {
  return LookupIn(engine, table, false, count, keys, embeddings);
}

int tfhybrid_table_lookup_outside(int64_t engine, const char* table, int64_t count,
                                  const int64_t* keys, float* embeddings) {
  return LookupIn(engine, table, true, count, keys, embeddings);
}

int tfhybrid_table_set_unseen(int64_t engine, const char* table, int zeros) {
  return WithTable(engine, table,
                   [&](Engine* /*its*/, OpenTable* open) { open->unseen_zeros = zeros != 0; });
}

int tfhybrid_read(int64_t engine, int tables, const char* const* names,
                  const uint64_t* min_versions, const int64_t* counts, const int64_t* const* keys,
                  float* const* embeddings, int timeout_ms, uint64_t* versions) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    std::vector<tfhybrid::TableRead> reads;
    for (int t = 0; t < tables; ++t) {
      TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> table, its->tables().Get(names[t]));
      const uint64_t min_version = min_versions == nullptr ? 0 : min_versions[t];
      reads.push_back({std::move(table), min_version, {keys[t], counts[t]}, embeddings[t]});
    }
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<uint64_t> found,
                              its->tables().Read(reads, timeout_ms));
    std::copy(found.begin(), found.end(), versions);
    return Status::Ok();
  });
}

int tfhybrid_table_wait(int64_t engine, const char* table) {
  return WithTable(engine, table, [](const Engine* its, OpenTable* open) {
    return its->WaitForVersion(*open, open->posted);
  });
}

int tfhybrid_table_read_rows(int64_t engine, const char* table, int64_t first, int64_t count,
                             int64_t* keys, float* embeddings, float* states, void* histories) {
  return WithDoneTable(engine, table, [&](OpenTable* open) -> Status {
    TFHYBRID_RETURN_IF_ERROR(open->reader->ReadRows(first, count, keys, embeddings));
    if (states == nullptr && histories == nullptr) return Status::Ok();
    TFHYBRID_RETURN_IF_ERROR(CheckLeads(*open));
    const MutexLock guard(open->writing);
    if (states != nullptr) {
      TFHYBRID_RETURN_IF_ERROR(open->writer->chunks().ReadState(first, count, states));
    }
    if (histories == nullptr) return Status::Ok();
    return open->writer->chunks().ReadHistory(first, count, static_cast<RowHistory*>(histories));
  });
}

int tfhybrid_table_read_keys(int64_t engine, const char* table, int64_t count, const int64_t* keys,
                             uint8_t* found, float* embeddings, float* states, void* histories) {
  return WithDoneTable(engine, table, [&](OpenTable* open) -> Status {
    const Span<const int64_t> wanted(keys, count);
    TFHYBRID_RETURN_IF_ERROR(open->reader->FindKeys(wanted, found));
    TFHYBRID_RETURN_IF_ERROR(open->reader->Lookup(wanted, embeddings));
    if (states == nullptr && histories == nullptr) return Status::Ok();
    TFHYBRID_RETURN_IF_ERROR(CheckLeads(*open));
    const MutexLock guard(open->writing);
    return open->writer->ReadKeys(wanted, states, static_cast<RowHistory*>(histories));
  });
}

int tfhybrid_table_write_rows(int64_t engine, const char* table, int64_t count, const int64_t* keys,
                              const float* embeddings, const float* states, const void* histories) {
  return WithWriter(engine, table, [&](TableWriter* writer) {
    WorkerThreads threads(ThreadsToLoad(count));
    return TableLoader(writer).WriteRows(Span<const int64_t>(keys, count), embeddings, states,
                                         static_cast<const RowHistory*>(histories),
                                         threads.parallel_for());
  });
}

int tfhybrid_table_remove_keys(int64_t engine, const char* table, int64_t count,
                               const int64_t* keys) {
  return WithWriter(engine, table, [&](TableWriter* writer) {
    return TableLoader(writer).RemoveKeys(Span<const int64_t>(keys, count));
  });
}

int tfhybrid_table_clear(int64_t engine, const char* table) {
  return WithWriter(engine, table, [](TableWriter* writer) { return TableLoader(writer).Clear(); });
}

int tfhybrid_table_reserve(int64_t engine, const char* table, int64_t rows) {
  return WithWriter(engine, table, [&](TableWriter* writer) { return writer->Reserve(rows); });
}

int tfhybrid_table_load_records(int64_t engine, const char* table, const char* path,
                                const tfhybrid_record_schema* schema, int64_t* rows) {
  std::function<bool(int64_t key)> owns;
  const int status = WithEngine(engine, [&](Engine* its) { owns = its->tables().OwnsOf(table); });
  if (status != 0) return status;
  return WithWriter(engine, table, [&](TableWriter* writer) {
    WorkerThreads threads(ThreadsToLoad(tfhybrid::kWorthThreads));
    return WriteTo(rows, tfhybrid::LoadRecordFile(path,
                                                  {schema->header_bytes, schema->record_bytes,
                                                   schema->key_offset, schema->embedding_offset},
                                                  writer, threads.parallel_for(), owns));
  });
}

int tfhybrid_table_set_version(int64_t engine, const char* table, uint64_t version,
                               uint64_t optimizer_start) {
  return WithTable(engine, table, [&](const Engine* its, OpenTable* open) -> Status {
    if (open->writer != nullptr) {
      const MutexLock guard(open->writing);
      open->writer->page().SetOptimizerStart(optimizer_start);
      open->writer->PublishVersion(version);
    }
    TFHYBRID_RETURN_IF_ERROR(its->WaitForVersion(*open, version));
    open->posted = version;
    return Status::Ok();
  });
}

int tfhybrid_table_decay(int64_t engine, const char* table, double* decay) {
  return WithDoneTable(engine, table, [&](OpenTable* open) { *decay = open->reader->decay(); });
}

int tfhybrid_table_set_decay(int64_t engine, const char* table, double decay) {
  return WithWriter(engine, table, [&](TableWriter* writer) -> Status {
    if (!(decay > 0.0 && decay <= 1.0) || writer->rows() != 0) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "The decay of an empty table lies above 0, up to 1. Received: ", decay,
                           " for ", writer->rows(), " rows");
    }
    tfhybrid::TableLoader(writer).SetInitialDecay(decay);
    return Status::Ok();
  });
}

int tfhybrid_table_set_event_time(int64_t engine, const char* table, int64_t time) {
  return WithWriter(engine, table,
                    [&](TableWriter* writer) { TableLoader(writer).SetEventTime(time); });
}

int tfhybrid_table_track_changes(int64_t engine, const char* table, const char* cursor) {
  return WithWriter(engine, table, [&](TableWriter* writer) { writer->snapshots().Track(cursor); });
}

int tfhybrid_table_freeze(int64_t engine, const char* table, const char* cursor, int only_changed,
                          tfhybrid_frozen_table* frozen) {
  return WithWriter(engine, table, [&](TableWriter* writer) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<FrozenTable> made,
                              writer->snapshots().Freeze(cursor, only_changed != 0));
    *frozen = {
        made->table_rows(),    static_cast<int64_t>(made->version()),        made->parts(),
        made->whole() ? 1 : 0, static_cast<int64_t>(made->removed().size()), made->event_time(),
        made->decay()};
    return Status::Ok();
  });
}

int tfhybrid_table_return_changes(int64_t engine, const char* table) {
  return WithWriter(engine, table,
                    [](TableWriter* writer) { writer->snapshots().ReturnChanges(); });
}

int tfhybrid_table_write_part(int64_t engine, const char* table, int64_t part, const char* path,
                              tfhybrid_table_file* file) {
  return WithTable(engine, table, [&](const Engine*, OpenTable* open) -> Status {
    std::shared_ptr<FrozenTable> frozen;
    {
      // Only for a moment: updates continue while the file is written.
      const MutexLock guard(open->writing);
      if (open->writer != nullptr) frozen = open->writer->snapshots().frozen();
    }
    if (frozen == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition, "Table '", table, "' is not frozen");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const tfhybrid::TableFile made,
                              path == nullptr ? tfhybrid::DescribeTableFile(frozen.get(), part)
                                              : tfhybrid::WriteTableFile(frozen.get(), part, path));
    *file = {made.rows, made.bytes, made.digest, made.crc};
    return Status::Ok();
  });
}

int tfhybrid_table_removed_keys(int64_t engine, const char* table, int64_t* keys) {
  return WithWriter(engine, table, [&](TableWriter* writer) -> Status {
    if (writer->snapshots().frozen() == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition, "Table '", table, "' is not frozen");
    }
    const std::vector<int64_t>& removed = writer->snapshots().frozen()->removed();
    std::copy(removed.begin(), removed.end(), keys);
    return Status::Ok();
  });
}

int tfhybrid_table_thaw(int64_t engine, const char* table) {
  return WithTable(engine, table, [&](const Engine*, OpenTable* open) {
    const MutexLock guard(open->writing);
    if (open->writer != nullptr) open->writer->snapshots().Thaw();
  });
}
