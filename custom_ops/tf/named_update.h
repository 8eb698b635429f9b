// NamedUpdate: the update that an op is a part of.
#ifndef TFHYBRID_TF_NAMED_UPDATE_H_
#define TFHYBRID_TF_NAMED_UPDATE_H_

#include <cstdint>
#include <memory>

#include "core/engine/engine.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

// The attributes of REGISTER_OP that NamedUpdate reads: an engine (core/engine/engine_registry.h)
// and an update that it has open.
#define TFHYBRID_UPDATE Attr("engine: int").Attr("update: int")

namespace tfhybrid {

class NamedUpdate {
 public:
  struct InUse {
    std::shared_ptr<Engine> engine;
    UpdateInUse update;
  };

  tensorflow::Status Read(tensorflow::OpKernelConstruction* context);
  // Held for as long as the op runs, not longer: TensorFlow keeps kernels of eager ops as long as
  // the process lives. Thread-safe.
  Result<InUse> Get() const;

 private:
  int64_t engine_ = 0, update_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_NAMED_UPDATE_H_
