// The inputs of the ops that handle a rank's gradients.
#ifndef TFHYBRID_TF_GRADIENT_INPUTS_H_
#define TFHYBRID_TF_GRADIENT_INPUTS_H_

#include <vector>

#include "core/compute/gradient_sum.h"
#include "core/update/contribution.h"
#include "core/update/gradient_message.h"
#include "core/update/table_update.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhybrid {

// The attributes `tables` and `dims`.
absl::Status ReadSchema(tensorflow::OpKernelConstruction* context, MessageSchema* schema);

// The attribute `distinct`: for each of `N` tables whether none of its keys comes twice.
absl::Status ReadDistinct(tensorflow::OpKernelConstruction* context, std::vector<bool>* distinct);

// The inputs `keys` and `gradients`: one entry per table; points into them.
Result<std::vector<KeyGradients>> ReadBatch(tensorflow::OpKernelContext* context,
                                            const MessageSchema& schema,
                                            const std::vector<bool>& distinct);

// The inputs `samples`, `skip`, `event_time` and `failure`.
Result<Contribution> ReadContribution(tensorflow::OpKernelContext* context);

// The inputs `learning_rates`, one per table, and `dense_squares`.
Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_GRADIENT_INPUTS_H_
