// UpdateKernel: an op that brings this rank's part of an update on its way.
#ifndef TFHYBRID_TF_UPDATE_KERNEL_H_
#define TFHYBRID_TF_UPDATE_KERNEL_H_

#include <memory>

#include "core/engine/engine.h"
#include "core/update/update_journal.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/named_update.h"
#include "tf/waiting_kernel.h"

namespace tfhybrid {

// Attributes: TFHYBRID_UPDATE.
class UpdateKernel : public WaitingKernel {
 public:
  explicit UpdateKernel(tensorflow::OpKernelConstruction* context) : WaitingKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
  }

 protected:
  virtual Status Run(tensorflow::OpKernelContext* context, const std::shared_ptr<Engine>& engine,
                     const UpdateInUse& update) = 0;

 private:
  Result<TablesInUse> Tables() final {
    TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
    return TablesInUse{in_use.engine, in_use.update->tables};
  }
  Status Run(tensorflow::OpKernelContext* context, const TablesInUse& /*in_use*/) final {
    TFHYBRID_ASSIGN_OR_RETURN(const NamedUpdate::InUse in_use, update_.Get());
    return Run(context, in_use.engine, in_use.update);
  }

  NamedUpdate update_;
};

// The inputs `learning_rates`, one per table, and `dense_squares`.
Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_KERNEL_H_
