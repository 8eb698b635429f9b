#include "tf/gradient_inputs.h"

#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::TensorShape;

tensorflow::Status ReadSchema(tensorflow::OpKernelConstruction* context, MessageSchema* schema) {
  TF_RETURN_IF_ERROR(context->GetAttr("tables", &schema->tables));
  TF_RETURN_IF_ERROR(context->GetAttr("dims", &schema->dims));
  int tables = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("N", &tables));
  if (schema->tables.size() == static_cast<size_t>(tables) &&
      schema->dims.size() == schema->tables.size()) {
    return tensorflow::OkStatus();
  }
  return tensorflow::errors::InvalidArgument("tables and dims have one entry per table");
}

tensorflow::Status ReadDistinct(tensorflow::OpKernelConstruction* context, size_t tables,
                                std::vector<bool>* distinct) {
  TF_RETURN_IF_ERROR(context->GetAttr("distinct", distinct));
  if (distinct->size() == tables) return tensorflow::OkStatus();
  return tensorflow::errors::InvalidArgument("distinct has one entry per table");
}

Result<std::vector<KeyGradients>> ReadGradients(tensorflow::OpKernelContext* context,
                                                const MessageSchema& schema,
                                                const std::vector<bool>& distinct) {
  OpInputList keys, gradients;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("keys", &keys)));
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("gradients", &gradients)));
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
    tables.push_back({KeysOf(keys[i]), gradients[i].flat<float>().data(),
                      RowLayout::Array(schema.dims[t]), distinct[t]});
  }
  return tables;
}

}  // namespace tfhybrid
