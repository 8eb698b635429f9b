#include "tf/bridge.h"

#include <string>
#include <utility>

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

Result<const tensorflow::Tensor*> InputOf(tensorflow::OpKernelContext* context, const char* name) {
  const tensorflow::Tensor* tensor = nullptr;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input(name, &tensor)));
  return tensor;
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

}  // namespace tfhybrid
