// TfhybridPostGradients: the end of a step on one host: this rank's gradients go to the leader
// through shared memory.
#include <memory>
#include <mutex>
#include <vector>

#include "core/sync/gradient_packer.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"
#include "tf/update_kernel.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("TfhybridPostGradients")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Input("learning_rates: float")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("update: string")
    .Attr("distinct: list(bool)")
    .Attr("hosts: list(int)")
    .Attr("reduction: {'frequency', 'sum', 'mean'} = 'frequency'")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) {
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Posts this rank's gradients to the leader of its host, which applies those of all ranks once.

For each key the ranks' gradients are summed in the order of ranks and divided as `reduction` says;
the table's optimizer is applied once; the table's version grows by 1. Not the
op but the next lookup waits for that.

proxies: One resource per table, the handle of its proxy variable: later lookups come after.
keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
distinct: For each table whether it is known that no key comes twice.
learning_rates: [N], one per table.
update: Tells the updates of one optimizer from those of others; equal on all ranks.
hosts: The host of each rank: all the same here.
reduction: 'frequency' divides by the number of ranks in which a key occurred, 'mean' by the number
  of ranks, 'sum' by nothing.
)doc");

class PostGradientsOp : public UpdateKernel {
 public:
  explicit PostGradientsOp(OpKernelConstruction* context) : UpdateKernel(context, true) {
    OP_REQUIRES_OK(context, ReadDistinct(context, dims().size(), &distinct_));
  }

 private:
  Status Run(OpKernelContext* context, const OpenTables& tables) override {
    TFHYBRID_ASSIGN_OR_RETURN(std::vector<KeyGradients> gradients,
                              ReadGradients(context, settings().schema, distinct_));
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<HostUpdate> update, Named());
    const std::lock_guard<std::mutex> guard(mutex_);
    const ParallelFor parallel_for = ThreadsOf(context);
    const std::vector<int64_t>& counts = packer_.Number(std::move(gradients), parallel_for);
    const Status posted = update->Post(counts, [&](const MessageBuilder& message) {
      packer_.Fill(settings().schema, message, parallel_for);
    });
    // A failure too: the leader, this one or another, tells it to all ranks.
    TFHYBRID_RETURN_IF_ERROR(Submit(context, tables, update, [] { return Status::Ok(); }));
    return posted;
  }

  std::vector<bool> distinct_;
  std::mutex mutex_;
  GradientPacker packer_;  // scratch, guarded by mutex_
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPostGradients").Device(tensorflow::DEVICE_CPU),
                        PostGradientsOp);

}  // namespace
}  // namespace tfhybrid
