// Common parts of the kernels: conversion between TensorFlow's and the core's statuses, threads and
// tables.
#ifndef TFHYBRID_TF_BRIDGE_H_
#define TFHYBRID_TF_BRIDGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"
#include "core/store/store.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

class DeviceLookup;
struct NumberedKeys;

absl::Status ToTensorFlow(const Status& status);

Status FromTensorFlow(const absl::Status& status);

// The values of an int64 tensor of any shape.
inline Span<const int64_t> Int64sOf(const tensorflow::Tensor& tensor) {
  return Span<const int64_t>(tensor.flat<int64_t>().data(), tensor.NumElements());
}

// The intra-op threads of the device that runs the kernel. From one of these it runs all work
// there: if each of them waited for the others, none would be left to do what they wait for.
ParallelFor ThreadsOf(tensorflow::OpKernelContext* context);
// How many those are.
int64_t ThreadCount(tensorflow::OpKernelContext* context);

// Continues an asynchronous kernel on a thread that runs ops, not on one of ThreadsOf().
void OnOpThread(tensorflow::OpKernelContext* context, std::function<void()> work);

// The tables of an op and the engine that they are open in, held for as long as the op runs.
struct TablesInUse {
  std::shared_ptr<Engine> engine;
  OpenTables tables;
  std::shared_ptr<const FetchedRows> fetched = nullptr;    // of sharded tables, in a lookup
  std::shared_ptr<const NumberedKeys> numbered = nullptr;  // where they were numbered for that
  std::shared_ptr<DeviceLookup> on_device = nullptr;       // likewise, in one on a device
};

// The tables that an op names, looked up when it first runs, because a graph may be built before
// its tables, and anew when its engine has another store. It must not keep them: TensorFlow keeps
// kernels of eager ops as long as the process lives. Thread-safe.
class NamedTables {
 public:
  // The attributes `engine` and `tables`.
  absl::Status Read(tensorflow::OpKernelConstruction* context);
  const std::vector<std::string>& names() const { return names_; }
  // `dims` is what the op was built for.
  Result<TablesInUse> Get(const std::vector<int64_t>& dims);

 private:
  int64_t number_ = 0;  // of the engine
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::weak_ptr<Engine> engine_;                  // guarded by mutex_; where tables_ are from
  std::vector<std::weak_ptr<OpenTable>> tables_;  // guarded by mutex_
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_BRIDGE_H_
