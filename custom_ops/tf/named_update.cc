#include "tf/named_update.h"

#include <utility>

#include "core/engine/engine_registry.h"

namespace tfhybrid {

tensorflow::Status NamedUpdate::Read(tensorflow::OpKernelConstruction* context) {
  TF_RETURN_IF_ERROR(context->GetAttr("engine", &engine_));
  return context->GetAttr("update", &update_);
}

Result<NamedUpdate::InUse> NamedUpdate::Get() const {
  TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, EngineOf(engine_));
  TFHYBRID_ASSIGN_OR_RETURN(UpdateInUse update, engine->Update(update_));
  return InUse{std::move(engine), std::move(update)};
}

}  // namespace tfhybrid
