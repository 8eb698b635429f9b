// The kernels of an update's ops, and how such an op names its update.
#ifndef TFHYBRID_TF_UPDATE_KERNEL_H_
#define TFHYBRID_TF_UPDATE_KERNEL_H_

#include <cstdint>
#include <memory>

#include "core/engine/engine.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/tables_kernel.h"

// The attributes of REGISTER_OP that NamedUpdate reads: an engine (core/engine/engine_registry.h)
// and an update that it has open.
#define TFHYBRID_UPDATE Attr("engine: int").Attr("update: int")

namespace tfhybrid {

// The update that an op is a part of.
class NamedUpdate {
 public:
  struct InUse {
    std::shared_ptr<Engine> engine;
    UpdateInUse update;
  };

  absl::Status Read(tensorflow::OpKernelConstruction* context);
  // Held for as long as the op runs, not longer: TensorFlow keeps kernels of eager ops as long as
  // the process lives. Thread-safe.
  Result<InUse> Get() const;

 private:
  int64_t engine_ = 0, update_ = 0;
};

// An op that brings this rank's part of an update on its way. Attributes: TFHYBRID_UPDATE.
class UpdateKernel : public TablesKernel {
 public:
  explicit UpdateKernel(tensorflow::OpKernelConstruction* context) : TablesKernel(context) {
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

// One part of an update that hosts exchange, on the leader of a host. Attributes: TFHYBRID_UPDATE.
// Runs on the engine's applying thread, after what that was given before, and holds no thread of
// TensorFlow's meanwhile.
class ExchangeKernel : public tensorflow::AsyncOpKernel {
 public:
  explicit ExchangeKernel(tensorflow::OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
  }

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  virtual Status Run(tensorflow::OpKernelContext* context, Engine* engine,
                     const UpdateInUse& update) = 0;

 private:
  // Either leaves the op to the applying thread, or returns what is wrong.
  Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done);

  NamedUpdate update_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_KERNEL_H_
