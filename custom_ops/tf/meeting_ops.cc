// TfhybridBeginMeeting and TfhybridEndMeeting record when this rank begins to wait for the others,
// and when it has met them.
//
// Both pass a tensor through, so that data dependencies order a graph's ops: ops that use the first
// op's output run after the begin, ops that produce the second op's input run before the end.
// Tensors are forwarded, not copied.
#include "core/engine/engine_registry.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfhybridBeginMeeting")
    .Input("order: resource")
    .Input("told: float")
    .Output("passed: float")
    .Output("number: int64")
    .Attr("engine: int")
    .Attr("signature: int")
    .Attr("series: int")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(1));
      context->set_output(1, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Notes that this rank begins a meeting of all ranks.

order: Of a variable that all such ops take, so that a graph begins its meetings in the order of the
  program, on every rank alike. It is not read.
told: What the meeting is about to use.
passed: The same.
number: Of the meeting; 0 if the job has ended.
engine: Of the rank.
signature: Equal on all ranks that do the same in this meeting.
series: What the meeting is counted with.
)doc");

REGISTER_OP("TfhybridEndMeeting")
    .Input("told: float")
    .Input("number: int64")
    .Output("passed: float")
    .Attr("engine: int")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Notes that this rank has met all others.

told: What the meeting gave.
number: Of the meeting.
passed: The same as told.
engine: Of the rank.
)doc");

// After the end of a job nothing is recorded, because its collectives may still run.
class MeetingOp : public OpKernel {
 public:
  explicit MeetingOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("engine", &engine_));
  }

 protected:
  std::shared_ptr<Engine> engine() const {
    Result<std::shared_ptr<Engine>> open = EngineOf(engine_);
    return open.ok() ? open.Take() : nullptr;
  }

 private:
  int64_t engine_ = 0;
};

class BeginMeetingOp : public MeetingOp {
 public:
  explicit BeginMeetingOp(OpKernelConstruction* context) : MeetingOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("signature", &signature_));
    OP_REQUIRES_OK(context, context->GetAttr("series", &series_));
  }

  void Compute(OpKernelContext* context) override {
    Tensor* number = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &number));
    const std::shared_ptr<Engine> its = engine();
    const uint64_t begun = its == nullptr ? 0
                                          : its->meetings().Begin(static_cast<uint64_t>(signature_),
                                                                  static_cast<uint64_t>(series_));
    number->scalar<int64_t>()() = static_cast<int64_t>(begun);
    context->set_output(0, context->input(1));
  }

 private:
  int64_t signature_ = 0, series_ = 0;
};

class EndMeetingOp : public MeetingOp {
 public:
  using MeetingOp::MeetingOp;

  void Compute(OpKernelContext* context) override {
    if (const std::shared_ptr<Engine> its = engine(); its != nullptr) {
      its->meetings().End(static_cast<uint64_t>(context->input(1).scalar<int64_t>()()));
    }
    context->set_output(0, context->input(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridBeginMeeting").Device(tensorflow::DEVICE_CPU),
                        BeginMeetingOp);
REGISTER_KERNEL_BUILDER(Name("TfhybridEndMeeting").Device(tensorflow::DEVICE_CPU), EndMeetingOp);

}  // namespace
}  // namespace tfhybrid
