// The inputs `keys` and `gradients` of the ops that say what a rank's step means for its tables.
#ifndef TFHYBRID_TF_GRADIENT_INPUTS_H_
#define TFHYBRID_TF_GRADIENT_INPUTS_H_

#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/sync/gradient_message.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

// The attributes `tables` and `dims`.
tensorflow::Status ReadSchema(tensorflow::OpKernelConstruction* context, MessageSchema* schema);

// The attribute `distinct`: for each of `tables` tables whether none of its keys comes twice.
tensorflow::Status ReadDistinct(tensorflow::OpKernelConstruction* context, size_t tables,
                                std::vector<bool>* distinct);

// One entry per table; points into the inputs.
Result<std::vector<KeyGradients>> ReadGradients(tensorflow::OpKernelContext* context,
                                                const MessageSchema& schema,
                                                const std::vector<bool>& distinct);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_GRADIENT_INPUTS_H_
