#include "tf/bridge.h"

#include "core/engine/engine_registry.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tfhybrid {

tensorflow::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return tensorflow::OkStatus();
    case StatusCode::kInvalidArgument:
      return tensorflow::errors::InvalidArgument(status.message());
    case StatusCode::kNotFound:
      return tensorflow::errors::NotFound(status.message());
    case StatusCode::kAlreadyExists:
      return tensorflow::errors::AlreadyExists(status.message());
    case StatusCode::kFailedPrecondition:
      return tensorflow::errors::FailedPrecondition(status.message());
    case StatusCode::kResourceExhausted:
      return tensorflow::errors::ResourceExhausted(status.message());
    case StatusCode::kDataLoss:
      return tensorflow::errors::DataLoss(status.message());
    case StatusCode::kPeerDied:
      return tensorflow::errors::Aborted(status.message());
    case StatusCode::kDeadlineExceeded:
      return tensorflow::errors::DeadlineExceeded(status.message());
    case StatusCode::kSystem:
      return tensorflow::errors::Internal(status.message());
  }
  return tensorflow::errors::Internal(status.message());
}

Status FromTensorFlow(const tensorflow::Status& status) {
  if (status.ok()) return Status::Ok();
  return Status::Error(tensorflow::errors::IsResourceExhausted(status)
                           ? StatusCode::kResourceExhausted
                           : StatusCode::kInvalidArgument,
                       std::string(status.message()));
}

ParallelFor ThreadsOf(tensorflow::OpKernelContext* context) {
  const tensorflow::DeviceBase::CpuWorkerThreads workers =
      *context->device()->tensorflow_cpu_worker_threads();
  return [workers](int64_t total, int64_t cost,
                   const std::function<void(int64_t begin, int64_t end)>& work) {
    tensorflow::Shard(workers.num_threads, workers.workers, total, cost, work);
  };
}

tensorflow::Status NamedTables::Read(tensorflow::OpKernelConstruction* context) {
  TF_RETURN_IF_ERROR(context->GetAttr("engine", &number_));
  return context->GetAttr("tables", &names_);
}

Result<TablesInUse> NamedTables::Get(const std::vector<int64_t>& dims) {
  const std::lock_guard<std::mutex> guard(mutex_);
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, EngineOf(number_));
  TablesInUse found = {engine, {}};
  found.tables.reserve(names_.size());
  if (engine_.lock() == engine) {
    // The engine holds them.
    for (const std::weak_ptr<OpenTable>& table : tables_) found.tables.push_back(table.lock());
    return found;
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> table, engine->Table(names_[i]));
    if (table->reader->dim() != dims[i]) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", names_[i], "' has dim ",
                           table->reader->dim(), ". Received: an op for dim ", dims[i]);
    }
    found.tables.push_back(std::move(table));
  }
  tables_.assign(found.tables.begin(), found.tables.end());
  engine_ = engine;
  return found;
}

}  // namespace tfhybrid
