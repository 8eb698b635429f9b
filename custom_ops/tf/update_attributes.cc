#include "tf/update_attributes.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "tf/bridge.h"
#include "tf/gradient_inputs.h"

namespace tfhybrid {

tensorflow::Status UpdateAttributes::Read(tensorflow::OpKernelConstruction* context) {
  MessageSchema schema;
  UpdateChoices choices;
  std::vector<int64_t> hosts;
  int64_t host = 0;
  TF_RETURN_IF_ERROR(ReadSchema(context, &schema));
  TF_RETURN_IF_ERROR(context->GetAttr("update", &name));
  TF_RETURN_IF_ERROR(context->GetAttr("hosts", &hosts));
  TF_RETURN_IF_ERROR(context->GetAttr("host", &host));
  TF_RETURN_IF_ERROR(context->GetAttr("exchange", &choices.exchange));
  TF_RETURN_IF_ERROR(context->GetAttr("reduction", &choices.reduction));
  TF_RETURN_IF_ERROR(context->GetAttr("wire_dtype", &choices.wire_dtype));
  TF_RETURN_IF_ERROR(context->GetAttr("clipping", &choices.clipping));
  TF_RETURN_IF_ERROR(context->GetAttr("clip_limit", &choices.clip_limit));
  Result<UpdateSettings> made =
      UpdateSettings::Make(std::move(schema), std::move(hosts), host, choices);
  TF_RETURN_IF_ERROR(ToTensorFlow(made.status()));
  settings = made.Take();
  return tensorflow::OkStatus();
}

Result<std::shared_ptr<HostUpdate>> UpdateAttributes::OpenIn(
    const std::shared_ptr<Engine>& engine) {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::shared_ptr<HostUpdate> update = engine_.lock() == engine ? update_.lock() : nullptr;
  if (update == nullptr) {
    TFHYBRID_ASSIGN_OR_RETURN(const size_t number, engine->OpenUpdate(name, settings));
    TFHYBRID_ASSIGN_OR_RETURN(update, engine->Update(number));
    engine_ = engine;
    update_ = update;
  }
  return update;
}

}  // namespace tfhybrid
