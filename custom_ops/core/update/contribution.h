// Contribution: the parts of a message besides its gradients.
#ifndef TFHYBRID_CORE_UPDATE_CONTRIBUTION_H_
#define TFHYBRID_CORE_UPDATE_CONTRIBUTION_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/compute/row_policy.h"
#include "core/update/gradient_message.h"
#include "core/update/update_settings.h"

namespace tfhybrid {

struct Contribution {
  int64_t samples = 0;           // of the batch; 0 from a rank that has none left
  bool skip = false;             // a gradient is not finite, so that nobody applies this update
  int64_t event_time = kNoTime;  // of its latest event
  std::string failure;           // if not empty, why there are no gradients
  bool key_handles = false;      // its keys are key handles

  void Write(const MessageBuilder& message) const {
    message.header()->samples = samples;
    message.header()->skip = skip;
    message.header()->event_time = event_time;
    if (key_handles) message.header()->form |= kOfHandles;
  }

  // What gradients are multiplied by on their way.
  float Factor(const UpdateSettings& settings) const {
    // Divided by the samples of all ranks when it is applied.
    return settings.reduction == Reduction::kMean ? static_cast<float>(samples) : 1.0f;
  }
};

// The combined contribution of messages, none of which is a failure.
inline Contribution JointOf(const std::vector<GradientMessage>& messages) {
  Contribution joint;
  for (const GradientMessage& message : messages) {
    joint.key_handles = joint.key_handles || (message.header.form & kOfHandles) != 0;
    joint.samples += message.header.samples;
    joint.skip = joint.skip || message.header.skip != 0;
    joint.event_time = std::max(joint.event_time, message.header.event_time);
  }
  return joint;
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_CONTRIBUTION_H_
