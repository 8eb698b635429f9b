// TfhybridLookup: embeddings of the keys of all features of a collection, in one op.
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/process_store.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/waiter.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Probing and copying one row, in nanoseconds.
constexpr int64_t kLookupCostNs = 100;

REGISTER_OP("TfhybridLookup")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Output("embeddings: N * float")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      std::vector<tensorflow::int64> dims;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      const int features = context->num_outputs();
      for (int i = 0; i < features; ++i) {
        tensorflow::shape_inference::ShapeHandle shape;
        TF_RETURN_IF_ERROR(context->Concatenate(
            context->input(features + i), context->Vector(dims[static_cast<size_t>(i)]), &shape));
        context->set_output(i, shape);
      }
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Reads embeddings from the host's shared tables; a key without a row reads its initial value.

Waits, on a thread of its own, until the updates that this rank has taken part in are applied.
The gradient with respect to a proxy is an IndexedSlices of the keys and the output's gradient.

proxies: One resource per feature: the handle of its table's proxy variable. It carries the
  gradient and orders this op against TfhybridUpdate.
keys: One tensor of any shape per feature. Every int64 is legal.
embeddings: keys[i].shape + [dims[i]].
tables: The table of each feature; features may share one.
dims: The dim of each feature's table.
)doc");

class LookupOp : public tensorflow::AsyncOpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    std::vector<std::string> names;
    OP_REQUIRES_OK(context, context->GetAttr("tables", &names));
    OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
    int features = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &features));
    OP_REQUIRES(context,
                names.size() == static_cast<size_t>(features) && names.size() == dims_.size(),
                tensorflow::errors::InvalidArgument(
                    "tables and dims have one entry per feature. Received: ", names.size(), ", ",
                    dims_.size(), " for ", features, " features"));
    tables_.SetNames(std::move(names));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const Status status = Start(context, done);
    OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(status), done);
  }

 private:
  struct Wanted {
    std::shared_ptr<OpenTable> table;
    uint64_t version;
  };

  // Either finishes and calls `done`, or leaves both to the waiting thread, or returns what is
  // wrong.
  Status Start(OpKernelContext* context, const DoneCallback& done) {
    TFHYBRID_ASSIGN_OR_RETURN(const OpenTables tables, tables_.Get(dims_));
    std::vector<Wanted> wanted;
    bool ready = true;
    for (const auto& table : tables) {
      wanted.push_back({table, table->posted.load()});
      ready = ready && table->reader->Reached(wanted.back().version);
    }
    if (ready) {
      TFHYBRID_RETURN_IF_ERROR(WaitAll(wanted));
      TFHYBRID_RETURN_IF_ERROR(Read(context, tables));
      done();
      return Status::Ok();
    }
    Waiter::Get().Submit([this, context, done, tables, wanted = std::move(wanted)] {
      const Status waited = WaitAll(wanted);
      OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(waited), done);
      // Back to TensorFlow's threads: the next op in the queue must not wait for this one's
      // copying.
      context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
          [this, context, done, tables] {
            const Status read = Read(context, tables);
            OP_REQUIRES_OK_ASYNC(context, ToTensorFlow(read), done);
            done();
          });
    });
    return Status::Ok();
  }

  static Status WaitAll(const std::vector<Wanted>& wanted) {
    for (const Wanted& want : wanted) {
      TFHYBRID_RETURN_IF_ERROR(WaitForVersion(*want.table, want.version));
    }
    return Status::Ok();
  }

  Status Read(OpKernelContext* context, const OpenTables& tables) {
    OpInputList keys;
    OpOutputList embeddings;
    TF_CHECK_OK(context->input_list("keys", &keys));
    TF_CHECK_OK(context->output_list("embeddings", &embeddings));
    std::vector<int64_t> starts = {0};
    std::vector<float*> outputs;
    for (int i = 0; i < keys.size(); ++i) {
      TensorShape shape = keys[i].shape();
      shape.AddDim(dims_[static_cast<size_t>(i)]);
      Tensor* output = nullptr;
      const tensorflow::Status allocated = embeddings.allocate(i, shape, &output);
      if (!allocated.ok()) {
        return Status::Error(StatusCode::kResourceExhausted, std::string(allocated.message()));
      }
      outputs.push_back(output->flat<float>().data());
      starts.push_back(starts.back() + keys[i].NumElements());
    }
    std::mutex mutex;
    Status failure;  // guarded by mutex
    ThreadsOf(context)(starts.back(), kLookupCostNs, [&](int64_t begin, int64_t end) {
      ForEachPart(starts, begin, end, [&](size_t i, int64_t first, int64_t last) {
        const auto* feature_keys = reinterpret_cast<const int64_t*>(
            keys[static_cast<int>(i)].flat<tensorflow::int64>().data());
        const Status looked_up = tables[i]->reader->Lookup(
            Span<const int64_t>(feature_keys + first, last - first), outputs[i] + first * dims_[i]);
        if (looked_up.ok()) return;
        const std::lock_guard<std::mutex> guard(mutex);
        failure = looked_up;
      });
    });
    return failure;
  }

  std::vector<int64_t> dims_;
  NamedTables tables_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace tfhybrid
