// UpdateKernel: an op that brings this rank's part of an update on its way.
#ifndef TFHYBRID_TF_UPDATE_KERNEL_H_
#define TFHYBRID_TF_UPDATE_KERNEL_H_

#include "core/update/host_update.h"
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
  UpdateAttributes& update() { return update_; }
  const MessageSchema& schema() const { return update_.settings.schema; }

 private:
  UpdateAttributes update_;
};

// The inputs `learning_rates`, one per table, and `dense_squares`.
Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_KERNEL_H_
