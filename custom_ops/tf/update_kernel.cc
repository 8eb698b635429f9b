#include "tf/update_kernel.h"

#include "tf/bridge.h"

namespace tfhybrid {

Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables) {
  const tensorflow::Tensor *rates = nullptr, *dense_squares = nullptr;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input("learning_rates", &rates)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input("dense_squares", &dense_squares)));
  if (rates->NumElements() != static_cast<int64_t>(tables)) {
    return Status::Error(StatusCode::kInvalidArgument, "learning_rates has one entry per table. ",
                         "Received: ", rates->shape().DebugString());
  }
  const float* data = rates->flat<float>().data();
  return StepNumbers{{data, data + tables}, dense_squares->scalar<double>()()};
}

}  // namespace tfhybrid
