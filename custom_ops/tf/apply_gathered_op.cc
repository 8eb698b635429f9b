// TfhybridApplyGathered: the end of a step whose messages all ranks got by an allgather. The leader
// of each host applies them once.
#include <memory>
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

REGISTER_OP("TfhybridApplyGathered")
    .Input("proxies: N * resource")
    .Input("messages: int64")
    .Input("learning_rates: float")
    .Input("dense_squares: double")
    .TFHYBRID_UPDATE.Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Updates the tables with the gradients of all ranks, on the leader; elsewhere notes that it will.

For each key the ranks' gradients are summed, by local rank within a host and then by host, and
divided as `reduction` says; the table's optimizer is applied once; the table's version grows by 1.
Not the op but the next lookup waits for that.

proxies: One resource per table, the handle of its proxy variable: later lookups come after.
messages: The messages of all ranks, laid end to end in the order of ranks.
learning_rates: [N], one per table.
dense_squares: The squares of all dense variables' gradients, added up; for clipping by global norm.
)doc");

class ApplyGatheredOp : public UpdateKernel {
 public:
  using UpdateKernel::UpdateKernel;

 private:
  Status Run(OpKernelContext* context, const std::shared_ptr<Engine>& engine,
             const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(StepNumbers numbers, ReadNumbers(context, update->tables.size()));
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* messages, InputOf(context, "messages"));
    // The tensor is held, not copied, until it lies in shared memory.
    engine->ApplyGathered(update, std::move(numbers),
                          [held = *messages] { return Int64sOf(held); });
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridApplyGathered").Device(tensorflow::DEVICE_CPU),
                        ApplyGatheredOp);

}  // namespace
}  // namespace tfhybrid
