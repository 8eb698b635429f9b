// The inputs `keys` and `gradients` of the ops that say what a rank's step means for its tables.
#ifndef TFHYBRID_TF_GRADIENT_INPUTS_H_
#define TFHYBRID_TF_GRADIENT_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/update/gradient_message.h"
#include "core/update/host_update.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

// The attributes `tables` and `dims`.
tensorflow::Status ReadSchema(tensorflow::OpKernelConstruction* context, MessageSchema* schema);

// The attribute `distinct`: for each of `tables` tables whether none of its keys comes twice.
tensorflow::Status ReadDistinct(tensorflow::OpKernelConstruction* context, size_t tables,
                                std::vector<bool>* distinct);

// The inputs `keys` and `gradients`: one entry per table; points into them.
Result<std::vector<KeyGradients>> ReadBatch(tensorflow::OpKernelContext* context,
                                            const MessageSchema& schema,
                                            const std::vector<bool>& distinct);

// By table: the micro-batches that were kept, then the inputs.
Result<std::vector<std::vector<KeyGradients>>> ReadGradients(tensorflow::OpKernelContext* context,
                                                             const HostUpdate& update,
                                                             const std::vector<bool>& distinct);

// The inputs `samples`, `skip`, `event_time` and `failure`.
struct MessageInputs {
  int64_t samples;
  bool skip;
  int64_t event_time;
  std::string failure;

  void Write(const MessageBuilder& message) const;
  // What gradients are multiplied by on their way.
  float Factor(const UpdateSettings& settings) const;
};
Result<MessageInputs> ReadMessageInputs(tensorflow::OpKernelContext* context);

// An output: int64 [words].
Result<Span<int64_t>> AllocateWords(tensorflow::OpKernelContext* context, int output,
                                    int64_t words);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_GRADIENT_INPUTS_H_
