// The C interface of passes.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/engine/engine_registry.h"

using tfhybrid::Engine;
using tfhybrid::Status;

namespace {

tfhybrid::Result<Engine::AskedPass> Plan(const Engine& engine, int tables, const char* const* names,
                                         const int64_t* counts, const int64_t* const* keys,
                                         const int32_t* const* batch_of) {
  std::vector<Engine::PassKeys> wanted;
  for (int t = 0; t < tables; ++t) {
    wanted.push_back({names[t], {keys[t], counts[t]}, batch_of[t]});
  }
  return engine.PlanPass(wanted);
}

}  // namespace

int tfhybrid_pass_weigh(int64_t engine, int tables, const char* const* names, const int64_t* counts,
                        const int64_t* const* keys, const int32_t* const* batch_of,
                        int64_t* bytes) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const Engine::AskedPass asked,
                              Plan(*its, tables, names, counts, keys, batch_of));
    *bytes = asked.bytes;
    return Status::Ok();
  });
}

int tfhybrid_pass_announce(int64_t engine, int tables, const char* const* names,
                           const int64_t* counts, const int64_t* const* keys,
                           const int32_t* const* batch_of, int64_t batches, int refuses,
                           int64_t* number) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(Engine::AskedPass asked,
                              Plan(*its, tables, names, counts, keys, batch_of));
    TFHYBRID_ASSIGN_OR_RETURN(*number, its->AnnouncePass(std::move(asked), batches, refuses != 0));
    return Status::Ok();
  });
}

int tfhybrid_pass_begin_batch(int64_t engine, int64_t number, int64_t batch) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) { return its->BeginBatch(number, batch); });
}

int tfhybrid_pass_end(int64_t engine, int64_t number) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) { return its->EndPass(number); });
}

int tfhybrid_passes_end(int64_t engine) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    its->EndPasses();
    return Status::Ok();
  });
}

int tfhybrid_passes_get(int64_t engine, tfhybrid_pass_stats* stats) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    const tfhybrid::PassCounts of_rank = its->passes().counts();
    const tfhybrid::KeeperCounts of_host = its->pass_counts();
    const tfhybrid::DeviceCounts on_device = its->device_tier().counts();
    *stats = {of_rank.passes,  of_rank.hits,    of_rank.misses,    of_host.asked,
              of_host.copied,  of_host.fetched, of_host.refreshed, of_host.bytes,
              on_device.bytes, on_device.copied};
    return Status::Ok();
  });
}

int tfhybrid_table_add_to_device(int64_t engine, const char* name) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<tfhybrid::OpenTable> table, its->Table(name));
    its->device_tier().Add(name, table->reader->dim());
    return Status::Ok();
  });
}

int tfhybrid_table_device_bytes(int64_t engine, const char* name, int64_t* bytes) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    const std::shared_ptr<tfhybrid::DeviceRows> rows = its->device_tier().Of(name);
    *bytes = rows == nullptr ? 0 : rows->bytes();
    return Status::Ok();
  });
}
