// UpdateKernel: an op that brings this rank's part of an update on its way.
#ifndef TFHYBRID_TF_UPDATE_KERNEL_H_
#define TFHYBRID_TF_UPDATE_KERNEL_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/sync/host_update.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/update_attributes.h"
#include "tf/waiting_kernel.h"

namespace tfhybrid {

// Attributes: TFHYBRID_UPDATE_ATTRIBUTES.
class UpdateKernel : public WaitingKernel {
 public:
  explicit UpdateKernel(tensorflow::OpKernelConstruction* context);

 protected:
  const UpdateAttributes& update() const { return update_; }
  const MessageSchema& schema() const { return update_.settings.schema; }

 private:
  UpdateAttributes update_;
};

// The inputs `learning_rates`, one per table, and `dense_squares`.
Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables);

// The tables' writers, which are the caller's alone as long as this lives. On the leader.
class HeldWriters {
 public:
  explicit HeldWriters(const OpenTables& tables);
  const std::vector<TableWriter*>& all() const { return writers_; }
  // Tells all who wait for the next update why it will not come.
  void Fail(const Status& why) const;

 private:
  std::vector<TableWriter*> writers_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

// On the leader: lets the ApplyingThread() apply the messages that `collect` returns there. The
// outcome reaches the next lookup.
void ApplyLater(const OpenTables& tables, const std::shared_ptr<HostUpdate>& update,
                StepNumbers numbers, std::function<Result<std::vector<GradientMessage>>()> collect);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_KERNEL_H_
