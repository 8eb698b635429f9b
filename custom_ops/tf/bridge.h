// What the kernels share: TensorFlow's words for the core's statuses, threads and tables.
#ifndef TFHYBRID_TF_BRIDGE_H_
#define TFHYBRID_TF_BRIDGE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/store/store.h"
#include "core/util/parallel.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

tensorflow::Status ToTensorFlow(const Status& status);

// The intra-op threads of the device that runs the kernel.
ParallelFor ThreadsOf(tensorflow::OpKernelContext* context);

// The tables that an op names, looked up when it first runs, because a graph may be built before its tables.
// Thread-safe. Keeps the tables' mappings alive as long as the kernel.
class NamedTables {
 public:
  void SetNames(std::vector<std::string> names) { names_ = std::move(names); }
  const std::vector<std::string>& names() const { return names_; }
  // `dims` is what the op was built for.
  Result<std::vector<OpenTable*>> Get(const std::vector<int64_t>& dims);

 private:
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<OpenTable>> tables_;  // guarded by mutex_; empty until found
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_BRIDGE_H_
