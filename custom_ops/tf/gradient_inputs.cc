#include "tf/gradient_inputs.h"

#include <cmath>

#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status ReadSchema(tensorflow::OpKernelConstruction* context, MessageSchema* schema) {
  TF_RETURN_IF_ERROR(context->GetAttr("tables", &schema->tables));
  TF_RETURN_IF_ERROR(context->GetAttr("dims", &schema->dims));
  int tables = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &tables));
  if (schema->tables.size() == static_cast<size_t>(tables) &&
      schema->dims.size() == schema->tables.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("tables and dims have one entry per table");
}

absl::Status ReadDistinct(tensorflow::OpKernelConstruction* context, std::vector<bool>* distinct) {
  int tables = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &tables));
  TF_RETURN_IF_ERROR(context->GetAttr("distinct", distinct));
  if (distinct->size() == static_cast<size_t>(tables)) return absl::OkStatus();
  return absl::InvalidArgumentError("distinct has one entry per table");
}

Result<std::vector<KeyGradients>> ReadBatch(tensorflow::OpKernelContext* context,
                                            const MessageSchema& schema,
                                            const std::vector<bool>& distinct) {
  OpInputList keys, gradients;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("keys", &keys)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("gradients", &gradients)));
  if (static_cast<size_t>(keys.size()) != schema.tables.size()) {
    return Status::Error(StatusCode::kInvalidArgument, "The update is of ", schema.tables.size(),
                         " tables. Received: keys of ", keys.size());
  }
  std::vector<KeyGradients> tables;
  for (int i = 0; i < keys.size(); ++i) {
    const auto t = static_cast<size_t>(i);
    const TensorShape wanted({keys[i].NumElements(), schema.dims[t]});
    if (keys[i].dims() != 1 || gradients[i].shape() != wanted) {
      return Status::Error(StatusCode::kInvalidArgument, "Table '", schema.tables[t],
                           "' wants keys [n] and gradients [n, ", schema.dims[t],
                           "]. Received: ", keys[i].shape().DebugString(), " and ",
                           gradients[i].shape().DebugString());
    }
    tables.push_back({Int64sOf(keys[i]), gradients[i].flat<float>().data(),
                      RowLayout::Array(schema.dims[t]), distinct[t]});
  }
  return tables;
}

Result<Contribution> ReadContribution(tensorflow::OpKernelContext* context) {
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* samples, InputOf(context, "samples"));
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* skip, InputOf(context, "skip"));
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* event_time, InputOf(context, "event_time"));
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* failure, InputOf(context, "failure"));
  for (const Tensor* input : {samples, skip, event_time, failure}) {
    if (input->NumElements() == 1) continue;
    return Status::Error(StatusCode::kInvalidArgument,
                         "samples, skip, event_time and failure are scalars. Received: ",
                         input->shape().DebugString());
  }
  const int64_t count = samples->flat<int64_t>()(0);
  if (count < 0) {
    return Status::Error(StatusCode::kInvalidArgument,
                         "samples is a number of samples. Received: ", count);
  }
  return Contribution{count, skip->flat<bool>()(0), event_time->flat<int64_t>()(0),
                      std::string(failure->flat<tensorflow::tstring>()(0))};
}

Result<StepNumbers> ReadNumbers(tensorflow::OpKernelContext* context, size_t tables) {
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* rates, InputOf(context, "learning_rates"));
  TFHYBRID_ASSIGN_OR_RETURN(const Tensor* dense_squares, InputOf(context, "dense_squares"));
  if (rates->NumElements() != static_cast<int64_t>(tables)) {
    return Status::Error(StatusCode::kInvalidArgument, "learning_rates has one entry per table. ",
                         "Received: ", rates->shape().DebugString());
  }
  const float* data = rates->flat<float>().data();
  // Before anything of the step is posted or applied.
  for (size_t t = 0; t < tables; ++t) {
    if (data[t] >= 0 && std::isfinite(data[t])) continue;
    return Status::Error(
        StatusCode::kInvalidArgument,
        "The learning rate of a table must be finite and at least 0. Received: ", data[t]);
  }
  return StepNumbers{{data, data + tables}, dense_squares->scalar<double>()()};
}

}  // namespace tfhybrid
