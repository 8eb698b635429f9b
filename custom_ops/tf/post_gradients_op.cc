// TfhybridPostGradients: the end of a rank's step: its gradients go to the leader of its host,
// through shared memory.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("TfhybridPostGradients")
    .Input("proxies: N * resource")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Input("samples: int64")
    .Input("skip: bool")
    .Input("event_time: int64")
    .Input("failure: string")
    .Input("learning_rates: float")
    .Input("dense_squares: double")
    .Attr("distinct: list(bool)")
    .Attr("N: int >= 1")
    .TFHYBRID_UPDATE.SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Posts this rank's gradients to the leader of its host.

On one host the leader applies those of all ranks once; with several, TfhybridMergeHost takes them
from there. The table's version grows by 1 when they are applied. Not the op but the next lookup
waits for that.

proxies: One resource per table, the handle of its proxy variable: later lookups come after.
keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
samples: Number of samples of the batch; 0 from a rank that has none left.
skip: Whether a gradient is not finite, so that no rank shall apply this update.
event_time: The latest of the batch's events, in a unit of the user's; the least int64 if unknown.
failure: If not empty, why this rank has no gradients; raised on all ranks.
learning_rates: [N], one per table.
dense_squares: The squares of all dense variables' gradients, added up; for clipping by global norm.
distinct: For each table whether it is known that no key comes twice.
)doc");

class PostGradientsOp : public UpdateKernel {
 public:
  explicit PostGradientsOp(OpKernelConstruction* context) : UpdateKernel(context) {
    OP_REQUIRES_OK(context, ReadDistinct(context, &distinct_));
  }

 private:
  Status Run(OpKernelContext* context, const std::shared_ptr<Engine>& engine,
             const UpdateInUse& update) override {
    TFHYBRID_ASSIGN_OR_RETURN(StepNumbers numbers, ReadNumbers(context, update->tables.size()));
    TFHYBRID_ASSIGN_OR_RETURN(const Contribution contribution, ReadContribution(context));
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<KeyGradients> batch,
                              ReadBatch(context, update->schema(), distinct_));
    return engine->Post(update, batch, contribution, std::move(numbers), ThreadsOf(context));
  }

  std::vector<bool> distinct_;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPostGradients").Device(tensorflow::DEVICE_CPU),
                        PostGradientsOp);

}  // namespace
}  // namespace tfhybrid
