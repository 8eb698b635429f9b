#include "core/c_api.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/c_api_guard.h"
#include "core/process_end.h"
#include "core/store/segment.h"
#include "core/store/store_report.h"
#include "core/store/table_digest.h"
#include "core/update/recovery.h"
#include "core/update/roll_forward.h"
#include "core/util/counters.h"
#include "core/util/crc32c.h"
#include "core/util/phase_times.h"

namespace tfhybrid {
namespace {

// Like WithEngine, for a body that needs its store.
template <typename Body>
int WithStore(int64_t engine, const Body& body) {
  return WithEngine(engine, [&](Engine* its) { return StatusOf(body, &its->store()); });
}

// Like WithStore, for a body that needs this rank's kept state.
template <typename Body>
int WithKept(int64_t engine, const Body& body) {
  return WithStore(engine, [&](Store* store) -> Status {
    const std::shared_ptr<KeptState> kept = store->kept();
    if (kept != nullptr) return StatusOf(body, store, kept.get());
    return Status::Error(StatusCode::kNotFound, "This rank keeps no state");
  });
}

// As tfhybrid_report_stores() says.
std::string TextOf(const std::vector<StoreReport>& stores) {
  std::ostringstream text(std::ios_base::out);
  for (const StoreReport& store : stores) {
    text << "store\t" << PercentEncode(store.job) << '\t' << PercentEncode(store.directory) << '\t'
         << store.bytes << '\t' << PercentEncode(store.problem) << '\n';
    for (const RankReport& rank : store.ranks) {
      text << "rank\t" << rank.local_rank << '\t' << static_cast<int>(rank.state.state) << '\t'
           << PercentEncode(rank.state.description) << '\n';
    }
    for (const TableReport& table : store.tables) {
      const TableStats& stats = table.stats;
      text << "table\t" << PercentEncode(table.name) << '\t' << PercentEncode(table.problem) << '\t'
           << table.dim << '\t' << static_cast<uint32_t>(table.optimizer);
      for (const int64_t number :
           {stats.rows, stats.version, stats.chunks, stats.index_slots, stats.embedding_bytes,
            stats.state_bytes, stats.history_bytes, stats.index_bytes, stats.bytes,
            stats.file_bytes, stats.cache_bytes, stats.cache_hits, stats.cache_misses,
            stats.written_rows, stats.evicted}) {
        text << '\t' << number;
      }
      text << '\n';
    }
  }
  return text.str();
}

// A line for each table: the result of `tell` (OpenTable* -> a number), and the table's file.
template <typename Tell>
int WithTablesOfStore(int64_t engine, const Tell& tell, char* lines, int64_t room, int64_t* size) {
  return WithStore(engine, [&](Store* store) -> Status {
    std::string report;
    for (const auto& [name, table] : store->tables()) {
      TFHYBRID_ASSIGN_OR_RETURN(const uint64_t number, Result<uint64_t>(tell(table.get())));
      // As in the file's name: without a space or a line's end.
      report += std::to_string(number) + " " + TablePaths("", name).Table().substr(1) + "\n";
    }
    CopyOut(report, lines, room, size);
    return Status::Ok();
  });
}

}  // namespace
}  // namespace tfhybrid

using tfhybrid::CopyOut, tfhybrid::Engine, tfhybrid::Guarded, tfhybrid::KeptState,
    tfhybrid::OpenEngine, tfhybrid::OpenTable, tfhybrid::PhaseSpan, tfhybrid::Result,
    tfhybrid::Span, tfhybrid::Status, tfhybrid::Store, tfhybrid::Topology, tfhybrid::WithKept,
    tfhybrid::WithStore, tfhybrid::WithTablesOfStore, tfhybrid::WriteTo;

const char* tfhybrid_last_error(void) { return tfhybrid::LastError().c_str(); }

int tfhybrid_engine_reserve(const int64_t* hosts, int ranks, int64_t nodes, int64_t host,
                            int64_t* engine) {
  return Guarded([&] {
    return WriteTo(engine, tfhybrid::ReserveEngine({{hosts, hosts + ranks}, host, nodes}));
  });
}

int tfhybrid_store_open(int64_t engine, const char* shm_directory, const char* job, int local_rank,
                        const char* description, uint64_t token, char* reclaimed, int64_t room,
                        int64_t* size) {
  return Guarded([&] {
    *size = 0;
    std::vector<std::string> lines;
    const Status opened = OpenEngine(engine, [&](const Topology& topology) {
      return Engine::Open({shm_directory, job, local_rank, description, token}, topology, &lines);
    });
    std::string report;
    for (const std::string& line : lines) report += line + "\n";
    CopyOut(report, reclaimed, room, size);
    return opened;
  });
}

void tfhybrid_store_close(int64_t engine, int leave) {
  const auto its = tfhybrid::EngineOf(engine);
  if (leave != 0 && its.ok()) its.value()->store().LeaveBehind();
  tfhybrid::CloseEngine(engine);
}

int tfhybrid_store_recover(int64_t engine, const char* shm_directory, const char* job,
                           const char* description, uint64_t* token) {
  return Guarded([&]() -> Status {
    return OpenEngine(engine, [&](const Topology& topology) -> Result<std::shared_ptr<Engine>> {
      TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<Engine> recovered,
                                Engine::Recover({shm_directory, job, 0, description, 0}, topology));
      *token = recovered->store().token();
      return recovered;
    });
  });
}

int tfhybrid_report_stores(const char* shm_directory, char* report, int64_t room, int64_t* size) {
  return Guarded([&] {
    CopyOut(tfhybrid::TextOf(tfhybrid::ReportStores(shm_directory)), report, room, size);
  });
}

int tfhybrid_remove_store(const char* shm_directory, const char* job, int64_t* bytes) {
  return Guarded([&] { return WriteTo(bytes, tfhybrid::RemoveStore(shm_directory, job)); });
}

int tfhybrid_store_versions(int64_t engine, char* versions, int64_t room, int64_t* size) {
  return WithTablesOfStore(
      engine, [](OpenTable* table) { return table->reader->version(); }, versions, room, size);
}

int tfhybrid_store_digests(int64_t engine, char* digests, int64_t room, int64_t* size) {
  // Only for replicated tables; of the others, hosts have different rows.
  const auto digest_of = [](OpenTable* table) -> Result<uint64_t> {
    if (table->reader->shape().shard.owners > 1) return uint64_t{0};
    return tfhybrid::TableDigest(table);
  };
  return WithTablesOfStore(engine, digest_of, digests, room, size);
}

int tfhybrid_last_updates(int64_t engine, int64_t* updates, int64_t room, int64_t* size) {
  return WithStore(engine, [&](Store* store) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<int64_t> last, tfhybrid::LastUpdates(*store));
    CopyOut(last, updates, room, size);
    return Status::Ok();
  });
}

int tfhybrid_roll_forward(int64_t engine, const int64_t* updates, int64_t words) {
  return WithStore(engine, [&](Store* store) {
    return tfhybrid::RollForward({updates, words}, *store, tfhybrid::RunInline);
  });
}

int tfhybrid_forget_updates(int64_t engine) {
  return WithStore(engine, [](Store* store) { return tfhybrid::ForgetUpdates(*store); });
}

int tfhybrid_kept_make(int64_t engine, const char* configuration, int64_t bytes) {
  return WithStore(engine, [&](Store* store) { return store->MakeKept(configuration, bytes); });
}

int tfhybrid_kept_note(int64_t engine, const void* note, int64_t bytes) {
  return WithStore(engine, [&](Store* store) {
    const std::shared_ptr<KeptState> kept = store->kept();
    const Span<const uint8_t> all(static_cast<const uint8_t*>(note), bytes);
    return kept == nullptr ? Status::Ok() : kept->SetNote(all);
  });
}

int tfhybrid_kept_forget(int64_t engine) {
  return WithStore(engine, [](Store* store) { store->ForgetKept(); });
}

int tfhybrid_kept_find(int64_t engine, char* configuration, int64_t room, int64_t* size) {
  return WithStore(engine, [&](Store* store) -> Status {
    TFHYBRID_RETURN_IF_ERROR(store->FindKept());
    CopyOut(store->kept()->configuration(), configuration, room, size);
    return Status::Ok();
  });
}

int tfhybrid_kept_steps(int64_t engine, int64_t* steps, int64_t* count) {
  return WithKept(engine, [&](Store* store, KeptState* kept) {
    *count = 0;
    for (const auto& state : kept->States()) {
      const bool fits = state.tables == store->TablesDigest({});
      if (fits) steps[(*count)++] = static_cast<int64_t>(state.step);
    }
  });
}

int tfhybrid_kept_resume(int64_t engine, int64_t step, void* state, int64_t bytes) {
  return WithKept(engine, [&](Store* store, KeptState* kept) {
    for (const auto& found : kept->States()) {
      if (found.step != static_cast<uint64_t>(step) || found.tables != store->TablesDigest({}) ||
          found.content.size() != bytes) {
        continue;
      }
      std::memcpy(state, found.content.data(), static_cast<size_t>(bytes));
      kept->StepBackTo(found.number);
      return Status::Ok();
    }
    return Status::Error(tfhybrid::StatusCode::kNotFound, "No state of step ", step, " and ", bytes,
                         " bytes is kept");
  });
}

int tfhybrid_rank_state(int64_t engine, int local_rank, int* state, char* description, int64_t room,
                        int64_t* size) {
  return WithStore(engine, [&](Store* store) {
    const tfhybrid::RankState found = store->StateOf(local_rank);
    *state = static_cast<int>(found.state);
    CopyOut(found.description, description, room, size);
  });
}

int tfhybrid_exit_after(int milliseconds) {
  return Guarded([&] { tfhybrid::ExitAfter(std::chrono::milliseconds(milliseconds)); });
}

int tfhybrid_linger_after_sigterm(int milliseconds) {
  return Guarded([&] { tfhybrid::LingerAfterSigterm(std::chrono::milliseconds(milliseconds)); });
}

int tfhybrid_is_lingering(void) { return tfhybrid::IsLingering() ? 1 : 0; }

int tfhybrid_phase_times(int phases, int64_t* nanoseconds) {
  for (int phase = 0; phase < phases && phase < tfhybrid::kPhases; ++phase) {
    nanoseconds[phase] = tfhybrid::NanosecondsIn(static_cast<tfhybrid::Phase>(phase));
  }
  return 0;
}

int tfhybrid_timeline_start(int64_t max_spans) {
  return Guarded([&] { tfhybrid::StartTimeline(max_spans); });
}

int tfhybrid_timeline_get(void* spans, int64_t room, int64_t* count) {
  return Guarded([&] {
    const std::vector<PhaseSpan> kept = tfhybrid::TimelineSpans();
    *count = std::min(room, static_cast<int64_t>(kept.size()));
    std::copy_n(kept.begin(), *count, static_cast<PhaseSpan*>(spans));
  });
}

int tfhybrid_counters(int counters, int64_t* counts) {
  for (int counter = 0; counter < counters && counter < tfhybrid::kCounters; ++counter) {
    counts[counter] = tfhybrid::CountOf(static_cast<tfhybrid::Counter>(counter));
  }
  return 0;
}

int64_t tfhybrid_available_bytes(const char* directory) {
  return tfhybrid::AvailableBytes(directory);
}

int tfhybrid_initial_rows(uint32_t initializer, double a, double b, uint64_t table_seed,
                          int64_t count, const int64_t* keys, int64_t dim, float* embeddings) {
  const tfhybrid::Initializer config = {static_cast<tfhybrid::InitializerKind>(initializer), a, b};
  const Status valid = tfhybrid::ValidateInitializer(config);
  for (int64_t i = 0; valid.ok() && i < count; ++i) {
    tfhybrid::InitializeRow(config, table_seed, keys[i], Span<float>(embeddings + i * dim, dim));
  }
  return tfhybrid::Report(valid);
}

uint64_t tfhybrid_table_seed(uint64_t job_seed, const char* table) {
  const std::string name = table;
  return tfhybrid::TableSeed(job_seed, name.data(), static_cast<int64_t>(name.size()));
}

uint64_t tfhybrid_rows_digest(const int64_t* keys, int64_t rows, const float* embeddings,
                              int64_t dim, const float* states, int64_t state_floats,
                              const void* histories) {
  return tfhybrid::RowsDigest({keys, rows}, embeddings, dim, states, state_floats,
                              static_cast<const tfhybrid::RowHistory*>(histories));
}

uint32_t tfhybrid_crc32c(const void* data, int64_t size, uint32_t seed) {
  return tfhybrid::Crc32c(data, size, seed);
}
