#include "core/engine/engine_registry.h"

#include <string>
#include <utility>
#include <vector>

#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

struct Entry {
  Topology topology;
  bool taken = false;  // by an engine, or by one that is being opened
  std::shared_ptr<Engine> engine;
};

struct Registry {
  Mutex mutex;
  std::vector<Entry> entries TFHYBRID_GUARDED_BY(mutex);  // by number, from 1
};

// Never destroyed: kernels may still ask while the process exits.
Registry& TheRegistry() {
  static Registry* const registry = new Registry();
  return *registry;
}

// Null where the number was never given.
Entry* Find(int64_t number) TFHYBRID_REQUIRES(TheRegistry().mutex) {
  std::vector<Entry>& entries = TheRegistry().entries;
  const bool given = number >= 1 && number <= static_cast<int64_t>(entries.size());
  return given ? &entries[static_cast<size_t>(number - 1)] : nullptr;
}

}  // namespace

Result<int64_t> ReserveEngine(Topology topology) {
  if (topology.LocalRanks() == 0 && !(topology.IsNode() && topology.host < topology.Hosts())) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "hosts has one entry per rank, this rank's too, and embedding nodes come "
                         "behind them. Received: ",
                         topology.hosts.size(), " entries, none of them host ", topology.host,
                         ", and ", topology.nodes, " nodes");
  }
  const MutexLock guard(TheRegistry().mutex);
  TheRegistry().entries.push_back({std::move(topology), false, nullptr});
  return static_cast<int64_t>(TheRegistry().entries.size());
}

Status OpenEngine(int64_t number,
                  const std::function<Result<std::shared_ptr<Engine>>(const Topology&)>& open) {
  Topology topology;
  {
    const MutexLock guard(TheRegistry().mutex);
    Entry* const entry = Find(number);
    if (entry == nullptr || entry->taken) {
      return Status::Error(
          StatusCode::kFailedPrecondition,
          entry == nullptr ? "No engine has the number " : "A store is open already in engine ",
          number);
    }
    entry->taken = true;
    topology = entry->topology;
  }
  // Not under the mutex: opening may wait for another process.
  Result<std::shared_ptr<Engine>> opened = open(topology);
  const MutexLock guard(TheRegistry().mutex);
  Entry* const entry = Find(number);
  entry->taken = opened.ok();
  if (opened.ok()) entry->engine = opened.Take();
  return opened.status();
}

Result<std::shared_ptr<Engine>> EngineOf(int64_t number) {
  std::shared_ptr<Engine> engine;
  {
    const MutexLock guard(TheRegistry().mutex);
    const Entry* const entry = Find(number);
    if (entry != nullptr) engine = entry->engine;
  }
  if (engine == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition, "Engine ", number,
                         " has no open store: tfhybrid.init() has not been called in this "
                         "process, or its job has ended");
  }
  TFHYBRID_RETURN_IF_ERROR(engine->CheckProcess());
  return engine;
}

void CloseEngine(int64_t number) {
  std::shared_ptr<Engine> engine;
  {
    const MutexLock guard(TheRegistry().mutex);
    Entry* const entry = Find(number);
    if (entry == nullptr || entry->engine == nullptr) return;
    std::swap(entry->engine, engine);
    entry->taken = false;
  }
  if (engine->CheckProcess().ok()) {
    engine->Close();
  } else {
    // Its threads are the parent's, and so is its part in the job.
    new std::shared_ptr<Engine>(std::move(engine));
  }
}

}  // namespace tfhybrid
