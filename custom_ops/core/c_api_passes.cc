// The C interface of passes.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/engine/engine_registry.h"
#include "core/passes/pass_report.h"
#include "core/util/counters.h"

using tfhybrid::Engine, tfhybrid::HostPasses, tfhybrid::PassCounter, tfhybrid::Status,
    tfhybrid::WithEngine;

namespace {

tfhybrid::Result<HostPasses::AskedPass> Plan(Engine* engine, int tables, const char* const* names,
                                             const int64_t* counts, const int64_t* const* keys,
                                             const int32_t* const* batch_of) {
  std::vector<HostPasses::PassKeys> requested;
  requested.reserve(static_cast<size_t>(std::max(tables, 0)));
  for (int t = 0; t < tables; ++t) {
    requested.push_back({names[t], {keys[t], counts[t]}, batch_of[t]});
  }
  return engine->passes().Plan(requested);
}

}  // namespace

int tfhybrid_pass_weigh(int64_t engine, int tables, const char* const* names, const int64_t* counts,
                        const int64_t* const* keys, const int32_t* const* batch_of,
                        int64_t* bytes) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const HostPasses::AskedPass asked,
                              Plan(its, tables, names, counts, keys, batch_of));
    *bytes = asked.bytes;
    return Status::Ok();
  });
}

int tfhybrid_pass_announce(int64_t engine, int tables, const char* const* names,
                           const int64_t* counts, const int64_t* const* keys,
                           const int32_t* const* batch_of, int64_t batches, int refuses,
                           int64_t* number) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const HostPasses::AskedPass asked,
                              Plan(its, tables, names, counts, keys, batch_of));
    return tfhybrid::WriteTo(number, its->passes().Announce(asked, batches, refuses != 0));
  });
}

int tfhybrid_pass_begin_batch(int64_t engine, int64_t number, int64_t batch) {
  return WithEngine(engine, [&](Engine* its) { return its->passes().BeginBatch(number, batch); });
}

int tfhybrid_pass_end(int64_t engine, int64_t number) {
  return WithEngine(engine, [&](Engine* its) { return its->passes().End(number); });
}

int tfhybrid_passes_end(int64_t engine) {
  return WithEngine(engine, [&](Engine* its) { its->passes().EndAll(); });
}

int tfhybrid_passes_get(int64_t engine, tfhybrid_pass_stats* stats) {
  return WithEngine(engine, [&](Engine* its) {
    const tfhybrid::PassCounts of_rank = its->passes().rank().counts();
    const auto of_host = [its](PassCounter counter) { return its->passes().CountOf(counter); };
    *stats = {of_rank.passes,
              of_rank.hits,
              of_rank.misses,
              of_host(PassCounter::kAsked),
              of_host(PassCounter::kCopied),
              of_host(PassCounter::kFetched),
              of_host(PassCounter::kRefreshed),
              of_host(PassCounter::kBytes),
              of_host(PassCounter::kWritten),
              of_rank.standing_rows,
              of_rank.standing_bytes,
              tfhybrid::CountOf(tfhybrid::Counter::kAheadHits),
              tfhybrid::CountOf(tfhybrid::Counter::kAheadMisses)};
  });
}

int tfhybrid_report_passes(const char* directory, tfhybrid_pass_report* report) {
  return tfhybrid::Guarded([&] {
    const tfhybrid::PassReport found = tfhybrid::ReportPasses(directory);
    *report = {found.standing, found.rows, found.bytes, {}};
    std::copy(std::begin(found.counts), std::end(found.counts), report->counts);
  });
}
