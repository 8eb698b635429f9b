// TfhybridSumOnHost and TfhybridBroadcastOnHost: averages of dense gradients over the ranks of a
// host, in shared memory (core/exchange/host_sum.h).
#include <memory>
#include <utility>
#include <vector>

#include "core/engine/engine_registry.h"
#include "core/exchange/host_sum.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf/bridge.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

// The resource comes first, which has no counterpart among the outputs.
absl::Status SameShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->input(i + 1));
  return absl::OkStatus();
}

REGISTER_OP("TfhybridSumOnHost")
    .Input("order: resource")
    .Input("told: float")
    .Input("gradients: T")
    .Output("told_by_all: float")
    .Output("sums: T")
    .Attr("T: list({float, double}) >= 0")
    .Attr("engine: int")
    .Attr("signature: int")
    .SetIsStateful()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Adds up what the ranks of a host tell and averages their gradients, each weighed by told[0].

order: Of a variable that all meetings take, so that ranks do their sums in the same order. It is
  not read.
told: At least one float.
gradients: Of this rank.
told_by_all: Its sums over the ranks of this host; on a rank that is not the leader, of all hosts.
sums: The averages; on a leader that has other hosts to add to, the sums of its own.
engine: Of the rank.
signature: Equal on all ranks that do the same.
)doc");

REGISTER_OP("TfhybridBroadcastOnHost")
    .Input("order: resource")
    .Input("told: float")
    .Input("gradients: T")
    .Output("told_by_all: float")
    .Output("averages: T")
    .Attr("T: list({float, double}) >= 0")
    .Attr("engine: int")
    .SetIsStateful()
    .SetShapeFn(SameShapes)
    .Doc(R"doc(
Ends TfhybridSumOnHost on the leader of one of several hosts: gives the other ranks of its host the
averages over all of them.

order: As of TfhybridSumOnHost.
told: The sums over all hosts of what was told.
gradients: The sums over all hosts.
told_by_all: As told.
averages: gradients / told[0].
engine: Of the rank.
)doc");

// Waits on the engine's summing thread, so that no thread of TensorFlow's does.
class HostSumOp : public WaitingKernel {
 public:
  explicit HostSumOp(OpKernelConstruction* context) : WaitingKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("engine", &engine_));
  }

 private:
  Status Start(OpKernelContext* context, const DoneCallback& done) final {
    if (context->input(1).NumElements() == 0) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "told begins with a number of samples. Received: an empty tensor");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, EngineOf(engine_));
    auto tensors = std::make_shared<DenseTensors>();
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(Prepare(context, tensors.get())));
    const bool submitted = engine->OnSumming([=](Result<HostSum*> host_sum) {
      const Status status = host_sum.ok() ? Run(host_sum.value(), *tensors) : host_sum.status();
      // Back on TensorFlow's threads: what comes next must not hold up the next sum.
      OnOpThread(context, [=] { Finish(context, status, done); });
    });
    if (submitted) return Status::Ok();
    return Status::Error(StatusCode::kFailedPrecondition,
                         "The job has ended: call tfhybrid.init()");
  }

  virtual Status Run(HostSum* host_sum, const DenseTensors& tensors) const = 0;

  static absl::Status Prepare(OpKernelContext* context, DenseTensors* tensors) {
    for (int i = 0; i < context->num_outputs(); ++i) {
      const Tensor& in = context->input(i + 1);
      Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({i + 1}, i, in.shape(), &out));
      tensors->push_back({in.dtype() == tensorflow::DT_FLOAT ? DenseTensor::Type::kFloat
                                                             : DenseTensor::Type::kDouble,
                          in.NumElements(), in.data(), out->data()});
    }
    return absl::OkStatus();
  }

  int64_t engine_ = 0;
};

class SumOnHostOp final : public HostSumOp {
 public:
  explicit SumOnHostOp(OpKernelConstruction* context) : HostSumOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("signature", &signature_));
  }

 private:
  Status Run(HostSum* host_sum, const DenseTensors& tensors) const override {
    return host_sum->Sum(static_cast<uint64_t>(signature_), tensors);
  }

  int64_t signature_ = 0;
};

class BroadcastOnHostOp final : public HostSumOp {
 public:
  using HostSumOp::HostSumOp;

 private:
  Status Run(HostSum* host_sum, const DenseTensors& tensors) const override {
    return host_sum->Broadcast(tensors);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridSumOnHost").Device(tensorflow::DEVICE_CPU), SumOnHostOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridBroadcastOnHost").Device(tensorflow::DEVICE_CPU),
                        BroadcastOnHostOp);

}  // namespace
}  // namespace tfhybrid
