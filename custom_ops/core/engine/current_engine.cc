#include "core/engine/current_engine.h"

#include <mutex>
#include <utility>

namespace tfhybrid {
namespace {

struct Holder {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;  // guarded by mutex
};

// Never destroyed: kernels may still ask while the process exits.
Holder& TheHolder() {
  static Holder* const holder = new Holder();
  return *holder;
}

}  // namespace

Result<std::shared_ptr<Engine>> CurrentEngine() {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard<std::mutex> guard(TheHolder().mutex);
    engine = TheHolder().engine;
  }
  if (engine == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "tfhybrid.init() has not been called in this process");
  }
  TFHYBRID_RETURN_IF_ERROR(engine->CheckProcess());
  return engine;
}

void SetCurrentEngine(std::shared_ptr<Engine> engine) {
  {
    const std::lock_guard<std::mutex> guard(TheHolder().mutex);
    std::swap(TheHolder().engine, engine);
  }
  if (engine == nullptr) return;
  if (engine->CheckProcess().ok()) {
    engine->Close();
  } else {
    // Its threads are the parent's, and so is its place in the job.
    new std::shared_ptr<Engine>(std::move(engine));
  }
}

}  // namespace tfhybrid
