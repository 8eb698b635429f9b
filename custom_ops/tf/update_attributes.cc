#include "tf/update_attributes.h"

#include <algorithm>
#include <cstdint>

#include "tf/bridge.h"
#include "tf/gradient_inputs.h"

namespace tfhybrid {

tensorflow::Status UpdateAttributes::Read(tensorflow::OpKernelConstruction* context) {
  std::string exchange, reduction, wire_dtype, clipping;
  TF_RETURN_IF_ERROR(ReadSchema(context, &settings.schema));
  TF_RETURN_IF_ERROR(context->GetAttr("update", &name));
  TF_RETURN_IF_ERROR(context->GetAttr("exchange", &exchange));
  TF_RETURN_IF_ERROR(context->GetAttr("hosts", &settings.hosts));
  TF_RETURN_IF_ERROR(context->GetAttr("host", &settings.host));
  TF_RETURN_IF_ERROR(context->GetAttr("reduction", &reduction));
  TF_RETURN_IF_ERROR(context->GetAttr("wire_dtype", &wire_dtype));
  TF_RETURN_IF_ERROR(context->GetAttr("clipping", &clipping));
  TF_RETURN_IF_ERROR(context->GetAttr("clip_limit", &settings.clip_limit));
  const Result<Reduction> parsed = ParseReduction(reduction);
  TF_RETURN_IF_ERROR(ToTensorFlow(parsed.status()));
  settings.reduction = parsed.value();
  const Result<Clipping> clips = ParseClipping(clipping);
  TF_RETURN_IF_ERROR(ToTensorFlow(clips.status()));
  settings.clipping = clips.value();
  const Result<Exchange> travels = ParseExchange(exchange);
  TF_RETURN_IF_ERROR(ToTensorFlow(travels.status()));
  settings.exchange = travels.value();
  settings.form = wire_dtype == "bfloat16" ? kBfloat16 : 0;
  settings.local_ranks = std::count(settings.hosts.begin(), settings.hosts.end(), settings.host);
  if (settings.local_ranks == 0) {
    return tensorflow::errors::InvalidArgument("hosts has one entry per rank, this rank's too");
  }
  if (settings.BetweenLeaders()) {
    // One message per host is applied.
    settings.hosts.erase(std::unique(settings.hosts.begin(), settings.hosts.end()),
                         settings.hosts.end());
  }
  // Two graphs of one optimizer may train different tables: their messages must not meet.
  name += "-" + std::to_string(static_cast<uint64_t>(settings.schema.Signature()));
  return tensorflow::OkStatus();
}

}  // namespace tfhybrid
