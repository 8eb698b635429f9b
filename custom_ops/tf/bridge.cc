#include "tf/bridge.h"

#include "core/engine/engine_registry.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tfhybrid {

absl::Status ToTensorFlow(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return absl::OkStatus();
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case StatusCode::kNotFound:
      return absl::NotFoundError(status.message());
    case StatusCode::kAlreadyExists:
      return absl::AlreadyExistsError(status.message());
    case StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(status.message());
    case StatusCode::kDataLoss:
      return absl::DataLossError(status.message());
    case StatusCode::kPeerDied:
      return absl::AbortedError(status.message());
    case StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(status.message());
    case StatusCode::kSystem:
      return absl::InternalError(status.message());
  }
  return absl::InternalError(status.message());
}

Status FromTensorFlow(const absl::Status& status) {
  if (status.ok()) return Status::Ok();
  return Status::Error(absl::IsResourceExhausted(status) ? StatusCode::kResourceExhausted
                                                         : StatusCode::kInvalidArgument,
                       std::string(status.message()));
}

ParallelFor ThreadsOf(tensorflow::OpKernelContext* context) {
  const tensorflow::DeviceBase::CpuWorkerThreads workers =
      *context->device()->tensorflow_cpu_worker_threads();
  return [workers](int64_t total, int64_t cost,
                   const std::function<void(int64_t begin, int64_t end)>& work) {
    if (workers.workers->CurrentThreadId() >= 0) return RunInline(total, cost, work);
    tensorflow::Shard(workers.num_threads, workers.workers, total, cost, work);
  };
}

int64_t ThreadCount(tensorflow::OpKernelContext* context) {
  return context->device()->tensorflow_cpu_worker_threads()->num_threads;
}

void OnOpThread(tensorflow::OpKernelContext* context, std::function<void()> work) {
  if (context->runner() == nullptr) return work();
  (*context->runner())(std::move(work));
}

absl::Status NamedTables::Read(tensorflow::OpKernelConstruction* context) {
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
