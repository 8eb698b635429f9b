// TfhybridPackGradients: what this rank says about a step, as one tensor for an allgather.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/current_engine.h"
#include "core/update/gradient_packer.h"
#include "core/util/phase_times.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/gradient_inputs.h"
#include "tf/update_attributes.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("TfhybridPackGradients")
    .Input("keys: N * int64")
    .Input("gradients: N * float")
    .Input("samples: int64")
    .Input("skip: bool")
    .Input("event_time: int64")
    .Input("failure: string")
    .Output("message: int64")
    .Attr("distinct: list(bool)")
    .TFHYBRID_UPDATE_ATTRIBUTES.SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Vector(context->UnknownDim()));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Sums the gradients of equal keys and packs distinct keys and sums of all tables into one message.

keys: [n_i] keys of table i, in any order, as often as they occur.
gradients: [n_i, dims[i]] their gradients.
samples: As of TfhybridPostGradients; so are `skip`, `event_time`, `failure` and
  `distinct`.
message: The message of this rank, 64-bit words (core/update/gradient_message.h); messages of all
  ranks laid end to end are the input of TfhybridApplyGathered.
)doc");

class PackGradientsOp : public tensorflow::OpKernel {
 public:
  explicit PackGradientsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, update_.Read(context));
    OP_REQUIRES_OK(context, ReadDistinct(context, schema().dims.size(), &distinct_));
  }

  void Compute(OpKernelContext* context) override {
    const PhaseTimer timer(Phase::kPost);
    const Status packed = Pack(context);
    OP_REQUIRES_OK(context, ToTensorFlow(packed));
  }

 private:
  const MessageSchema& schema() const { return update_.settings.schema; }

  Status Pack(OpKernelContext* context) {
    TFHYBRID_ASSIGN_OR_RETURN(const MessageInputs inputs, ReadMessageInputs(context));
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, CurrentEngine());
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<HostUpdate> opened,
                              update_.OpenIn(engine.get()));
    TFHYBRID_ASSIGN_OR_RETURN(std::vector<std::vector<KeyGradients>> gradients,
                              ReadGradients(context, *opened, distinct_));
    if (!inputs.failure.empty()) {
      const std::vector<int64_t> words = FailureMessage(schema(), 0, inputs.failure);
      TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> message,
                                AllocateWords(context, 0, static_cast<int64_t>(words.size())));
      std::copy(words.begin(), words.end(), message.begin());
      return Status::Ok();
    }
    const std::lock_guard<std::mutex> guard(mutex_);
    const ParallelFor parallel_for = ThreadsOf(context);
    const std::vector<int64_t>& counts = packer_.Number(std::move(gradients), parallel_for);
    TFHYBRID_ASSIGN_OR_RETURN(const Span<int64_t> words,
                              AllocateWords(context, 0, MessageWords(schema(), counts)));
    const MessageBuilder message(schema(), counts, words);
    inputs.Write(message);
    packer_.Fill(schema(), message, inputs.Factor(update_.settings), parallel_for);
    opened->Forget();
    return Status::Ok();
  }

  UpdateAttributes update_;
  std::vector<bool> distinct_;
  std::mutex mutex_;
  GradientPacker packer_;  // scratch, guarded by mutex_
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPackGradients").Device(tensorflow::DEVICE_CPU),
                        PackGradientsOp);

}  // namespace
}  // namespace tfhybrid
