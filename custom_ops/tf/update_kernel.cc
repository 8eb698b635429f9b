#include "tf/update_kernel.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tf/background.h"
#include "tf/bridge.h"

namespace tfhybrid {

UpdateKernel::UpdateKernel(tensorflow::OpKernelConstruction* context) : WaitingKernel(context) {
  OP_REQUIRES_OK(context, update_.Read(context));
}

Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables) {
  const tensorflow::Tensor *rates = nullptr, *dense_squares = nullptr;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input("learning_rates", &rates)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input("dense_squares", &dense_squares)));
  if (rates->NumElements() != static_cast<int64_t>(tables)) {
    return Status::Error(StatusCode::kInvalidArgument, "learning_rates has one entry per table. ",
                         "Received: ", rates->shape().DebugString());
  }
  const float* data = rates->flat<float>().data();
  return StepNumbers{{data, data + tables}, dense_squares->scalar<double>()()};
}

HeldWriters::HeldWriters(const OpenTables& tables) {
  // In one order for all updates, so that two that share tables cannot wait for each other.
  OpenTables in_order = tables;
  std::sort(in_order.begin(), in_order.end());
  for (const auto& table : in_order) {
    locks_.emplace_back(table->writing);
    if (table->waiting != nullptr) locks_.emplace_back(table->waiting->writing);
  }
  for (const auto& table : tables) writers_.push_back(table->writer.get());
}

void HeldWriters::Fail(const Status& why) const {
  for (TableWriter* writer : writers_) writer->PublishFailure(why);
}

void ApplyLater(const OpenTables& tables, const std::shared_ptr<HostUpdate>& update,
                StepNumbers numbers,
                std::function<Result<std::vector<GradientMessage>>()> collect) {
  // The tables are held, so that their mappings outlive the update.
  ApplyingThread().Submit(
      [tables, update, numbers = std::move(numbers), collect = std::move(collect)] {
        const Result<std::vector<GradientMessage>> messages = collect();
        const HeldWriters writers(tables);
        const Status applied =
            messages.ok() ? update->Apply(messages.value(), numbers, writers.all(), HostThreads())
                          : messages.status();
        if (!applied.ok()) writers.Fail(applied);
      });
}

}  // namespace tfhybrid
