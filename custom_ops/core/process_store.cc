#include "core/process_store.h"

#include <mutex>
#include <utility>

namespace tfhybrid {
namespace {

struct Holder {
  std::mutex mutex;
  std::shared_ptr<Store> store;  // guarded by mutex
};

// Never destroyed: kernels may still ask while the process exits.
Holder& TheHolder() {
  static Holder* const holder = new Holder();
  return *holder;
}

}  // namespace

std::shared_ptr<Store> ProcessStore() {
  const std::lock_guard<std::mutex> guard(TheHolder().mutex);
  return TheHolder().store;
}

void SetProcessStore(std::shared_ptr<Store> store) {
  const std::lock_guard<std::mutex> guard(TheHolder().mutex);
  std::swap(TheHolder().store, store);
}

Result<std::shared_ptr<OpenTable>> OpenTableNamed(const std::string& name) {
  const std::shared_ptr<Store> store = ProcessStore();
  if (store == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition,
                         "tfhybrid.init() has not been called in this process, wanted for table '",
                         name, "'");
  }
  std::shared_ptr<OpenTable> table = store->Find(name);
  if (table == nullptr || !table->named) {
    return Status::Error(StatusCode::kNotFound, "No table named '", name,
                         "' is open in this process: build its layer after tfhybrid.init() and, "
                         "with resume='memory', call tfhybrid.checkpoint.restore() before it is "
                         "used");
  }
  return table;
}

Status WaitUntilDone(const OpenTable& table, uint64_t version) {
  const Status waited = WaitForVersion(table, version);
  return table.reader->Reached(version) ? Status::Ok() : waited;
}

Status WaitForVersion(const OpenTable& table, uint64_t version) {
  return table.reader->WaitVersion(version, [] {
    const std::shared_ptr<Store> store = ProcessStore();
    return store == nullptr ? Status::Ok() : store->CheckLeader();
  });
}

}  // namespace tfhybrid
