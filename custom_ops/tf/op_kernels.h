// The kernels that ops on tables and ops of an update derive from, and how such ops name them.
#ifndef TFHYBRID_TF_OP_KERNELS_H_
#define TFHYBRID_TF_OP_KERNELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/store/store.h"
#include "core/util/mutex.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

// The attributes of REGISTER_OP that NamedUpdate reads: an engine (core/engine/engine_registry.h)
// and an update that it has open.
#define TFHYBRID_UPDATE Attr("engine: int").Attr("update: int")

namespace tfhybrid {

struct NumberedKeys;

// The tables of an op and the engine that they are open in, held for as long as the op runs.
struct TablesInUse {
  std::shared_ptr<Engine> engine;
  OpenTables tables;
  std::shared_ptr<const FetchedRows> fetched = nullptr;    // of sharded tables, in a lookup
  std::shared_ptr<const NumberedKeys> numbered = nullptr;  // where they were numbered for that
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
  Mutex mutex_;
  std::weak_ptr<Engine> engine_ TFHYBRID_GUARDED_BY(mutex_);  // where tables_ are from
  std::vector<std::weak_ptr<OpenTable>> tables_ TFHYBRID_GUARDED_BY(mutex_);
};

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

// An op that holds no thread of TensorFlow's while it waits.
class WaitingKernel : public tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) final;

 protected:
  // Either ends the op, or leaves that to another thread, or returns what is wrong.
  virtual Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done) = 0;
  // Ends the op.
  static void Finish(tensorflow::OpKernelContext* context, const Status& status,
                     const DoneCallback& done);
};

// An op on tables that begins when they have the updates that this rank took part in.
class TablesKernel : public WaitingKernel {
 public:
  using WaitingKernel::WaitingKernel;

 protected:
  virtual Result<TablesInUse> Tables() = 0;
  // For sharded tables, on the engine's fetching thread: fetches the rows that Run() will find in
  // `in_use`.
  virtual Status Fetch(tensorflow::OpKernelContext* /*context*/, TablesInUse* /*in_use*/) {
    return Status::Ok();
  }
  // How many of those updates may be missing.
  virtual uint64_t Staleness(tensorflow::OpKernelContext* /*context*/, const SplitBatches&) {
    return 0;
  }
  // On one of TensorFlow's threads, once the tables have come so far.
  virtual Status Run(tensorflow::OpKernelContext* context, const TablesInUse& in_use) = 0;

 private:
  // Back on TensorFlow's threads: the next op in a queue must not wait for this one's work.
  void ScheduleRun(tensorflow::OpKernelContext* context, const TablesInUse& in_use,
                   const DoneCallback& done);
  Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done) final;
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
// Runs on the engine's applying thread, after what that was given before.
class ExchangeKernel : public WaitingKernel {
 public:
  explicit ExchangeKernel(tensorflow::OpKernelConstruction* context) : WaitingKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
  }

 protected:
  virtual Status Run(tensorflow::OpKernelContext* context, ApplyingThread* thread,
                     const UpdateInUse& update) = 0;

 private:
  Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done) final;

  NamedUpdate update_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_OP_KERNELS_H_
