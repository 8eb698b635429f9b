// TablesKernel: an op on tables that begins when they have the updates that this rank took part
// in, and that meanwhile holds no thread of TensorFlow's.
#ifndef TFHYBRID_TF_TABLES_KERNEL_H_
#define TFHYBRID_TF_TABLES_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/bridge.h"

namespace tfhybrid {

class TablesKernel : public tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  virtual Result<TablesInUse> Tables() = 0;
  // For sharded tables, on the engine's fetching thread: fetches the rows that Run() will find in
  // `in_use`.
  virtual Status Fetch(tensorflow::OpKernelContext* /*context*/, TablesInUse* /*in_use*/) {
    return Status::Ok();
  }
  // How many of those updates may be missing.
  virtual uint64_t Staleness(tensorflow::OpKernelContext* /*context*/, const Engine& /*engine*/) {
    return 0;
  }
  // On one of TensorFlow's threads, once the tables have come so far.
  virtual Status Run(tensorflow::OpKernelContext* context, const TablesInUse& in_use) = 0;

 private:
  // Back on TensorFlow's threads: the next op in a queue must not wait for this one's work.
  void ScheduleRun(tensorflow::OpKernelContext* context, const TablesInUse& in_use,
                   const DoneCallback& done);
  // Either finishes and calls `done`, or leaves both to the version thread, or returns what is
  // wrong.
  Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done);
};

// One that names its tables by the attributes `engine`, `tables` and `dims`.
class NamedTablesKernel : public TablesKernel {
 public:
  explicit NamedTablesKernel(tensorflow::OpKernelConstruction* context);

 protected:
  const std::vector<std::string>& names() const { return tables_.names(); }
  const std::vector<int64_t>& dims() const { return dims_; }

 private:
  Result<TablesInUse> Tables() final { return tables_.Get(dims_); }

  std::vector<int64_t> dims_;
  NamedTables tables_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_TABLES_KERNEL_H_
