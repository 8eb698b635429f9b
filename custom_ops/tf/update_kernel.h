// UpdateKernel: what the two ways in which a step's gradients reach the leader have in common.
#ifndef TFHYBRID_TF_UPDATE_KERNEL_H_
#define TFHYBRID_TF_UPDATE_KERNEL_H_

#include <memory>
#include <string>

#include "core/sync/host_update.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/waiting_kernel.h"

namespace tfhybrid {

// Attributes: those of WaitingKernel, `update`, `hosts` and `reduction`. Input: `learning_rates`.
class UpdateKernel : public WaitingKernel {
 public:
  UpdateKernel(tensorflow::OpKernelConstruction* context, bool mailbox_per_rank);

 protected:
  const UpdateSettings& settings() const { return settings_; }
  // This op's update in the store of the running job.
  Result<std::shared_ptr<HostUpdate>> Named() const;
  // Notes that this rank takes part in the next update of these tables, and on the leader lets the
  // ApplyingThread() lead it, after `before` has run there. The outcome reaches the next lookup.
  Status Submit(tensorflow::OpKernelContext* context, const OpenTables& tables,
                const std::shared_ptr<HostUpdate>& update, std::function<Status()> before) const;

 private:
  std::string name_;
  UpdateSettings settings_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_KERNEL_H_
