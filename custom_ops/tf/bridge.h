// Conversion between TensorFlow's and the core's statuses, tensors and threads.
#ifndef TFHYBRID_TF_BRIDGE_H_
#define TFHYBRID_TF_BRIDGE_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

absl::Status ToTensorFlow(const Status& status);

Status FromTensorFlow(const absl::Status& status);

// The values of an int64 tensor of any shape.
inline Span<const int64_t> Int64sOf(const tensorflow::Tensor& tensor) {
  return Span<const int64_t>(tensor.flat<int64_t>().data(), tensor.NumElements());
}

// The intra-op threads of the device that runs the kernel. From one of these it runs all work
// there: if each of them waited for the others, none would be left to do what they wait for.
ParallelFor ThreadsOf(tensorflow::OpKernelContext* context);
// How many those are.
int64_t ThreadCount(tensorflow::OpKernelContext* context);

// Continues an asynchronous kernel on a thread that runs ops, not on one of ThreadsOf().
void OnOpThread(tensorflow::OpKernelContext* context, std::function<void()> work);

// An input of an op, by its name.
Result<const tensorflow::Tensor*> InputOf(tensorflow::OpKernelContext* context, const char* name);

// The values of a new output; of one number by default.
template <typename T>
Result<Span<T>> AllocateOutput(tensorflow::OpKernelContext* context, int output,
                               const tensorflow::TensorShape& shape = {}) {
  tensorflow::Tensor* tensor = nullptr;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->allocate_output(output, shape, &tensor)));
  return Span<T>(tensor->flat<T>().data(), tensor->NumElements());
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_BRIDGE_H_
