// The leader's ops of a step on several hosts: merge, exchange (Horovod's), stage, commit.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfhybridMergeHost")
    .Input("proxies: N * resource")
    .Output("message: int64")
    .Output("splits: int32")
    .TFHYBRID_UPDATE.Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      context->set_output(1, context->Vector(context->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Waits for the gradients of this host's ranks and merges them. After TfhybridPostGradients.

proxies: One resource per table, the handle of its proxy variable.
message: This host's message; with exchange 'owner' one message per host, end to end.
splits: Words of the message, or of each message.
)doc");

REGISTER_OP("TfhybridMergeOwned")
    .Input("messages: int64")
    .Output("message: int64")
    .TFHYBRID_UPDATE.SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Merges the messages with the keys that this host owns.

messages: As all hosts sent them, end to end in the order of hosts.
message: What all hosts shall get, and stage.
)doc");

REGISTER_OP("TfhybridStageUpdate")
    .Input("proxies: N * resource")
    .Input("messages: int64")
    .Output("vote: bool")
    .Output("complaint: uint8")
    .TFHYBRID_UPDATE.Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->Scalar());
      context->set_output(1, context->Vector(context->UnknownDim()));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Plans the update that the messages of all hosts say, and makes room for it.

proxies: One resource per table, the handle of its proxy variable.
messages: Of all hosts, or of all owners, end to end.
vote: Whether the others may complain where this host does not; the same on all hosts.
complaint: Why this host cannot apply the update; empty if it can.
)doc");

REGISTER_OP("TfhybridCommitUpdate")
    .Input("proxies: N * resource")
    .Input("complaints: uint8")
    .Input("learning_rates: float")
    .Input("dense_squares: double")
    .TFHYBRID_UPDATE.Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Applies the update that was staged, or tells all who wait for it why it will not come.

Not the op but the next lookup waits for that.

proxies: One resource per table, the handle of its proxy variable: later lookups come after.
complaints: Of all hosts, the same on all; empty if the update shall be applied.
learning_rates: [N], one per table.
dense_squares: The squares of all dense variables' gradients, added up; for clipping by global norm.
)doc");

class MergeHostOp : public ExchangeKernel {
 public:
  using ExchangeKernel::ExchangeKernel;

 private:
  Status Run(OpKernelContext* context, ApplyingThread* thread, const UpdateInUse& update) override {
    thread->Merge(*update);
    const std::vector<int64_t> splits = update->exchange->Splits();
    TFHYBRID_ASSIGN_OR_RETURN(
        const Span<int32_t> sizes,
        AllocateOutput<int32_t>(context, 1, {static_cast<int64_t>(splits.size())}));
    std::copy(splits.begin(), splits.end(), sizes.begin());
    const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> words,
                              AllocateOutput<int64_t>(context, 0, {total}));
    update->exchange->Fill(words, thread->parallel_for());
    return Status::Ok();
  }
};

class MergeOwnedOp : public ExchangeKernel {
 public:
  using ExchangeKernel::ExchangeKernel;

 private:
  Status Run(OpKernelContext* context, ApplyingThread* thread, const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* messages, InputOf(context, "messages"));
    update->exchange->MergeOwned(Int64sOf(*messages), thread->parallel_for());
    TFHYBRID_ASSIGN_OR_RETURN(
        const Span<int64_t> words,
        AllocateOutput<int64_t>(context, 0, {update->exchange->Splits().front()}));
    update->exchange->Fill(words, thread->parallel_for());
    return Status::Ok();
  }
};

class StageUpdateOp : public ExchangeKernel {
 public:
  using ExchangeKernel::ExchangeKernel;

 private:
  Status Run(OpKernelContext* context, ApplyingThread* thread, const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* messages, InputOf(context, "messages"));
    const HostExchange::Staged staged = thread->Stage(*update, Int64sOf(*messages));
    const auto bytes = static_cast<int64_t>(staged.complaint.size());
    TFHYBRID_ASSIGN_OR_RETURN(const Span<bool> vote, AllocateOutput<bool>(context, 0));
    TFHYBRID_ASSIGN_OR_RETURN(const Span<uint8_t> complaint,
                              AllocateOutput<uint8_t>(context, 1, {bytes}));
    vote[0] = staged.vote;
    std::copy(staged.complaint.begin(), staged.complaint.end(), complaint.begin());
    return Status::Ok();
  }
};

class CommitUpdateOp : public ExchangeKernel {
 public:
  using ExchangeKernel::ExchangeKernel;

 private:
  Status Run(OpKernelContext* context, ApplyingThread* thread, const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* complaints, InputOf(context, "complaints"));
    TFHYBRID_ASSIGN_OR_RETURN(StepNumbers numbers, ReadNumbers(context, update->tables.size()));
    const auto* text = reinterpret_cast<const char*>(complaints->flat<uint8_t>().data());
    // The step does not wait for it.
    thread->Commit(update, std::move(numbers),
                   {text, static_cast<size_t>(complaints->NumElements())});
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridMergeHost").Device(tensorflow::DEVICE_CPU), MergeHostOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridMergeOwned").Device(tensorflow::DEVICE_CPU), MergeOwnedOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridStageUpdate").Device(tensorflow::DEVICE_CPU), StageUpdateOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridCommitUpdate").Device(tensorflow::DEVICE_CPU),
                        CommitUpdateOp);

}  // namespace
}  // namespace tfhybrid
