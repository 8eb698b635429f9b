#include "core/update/update_settings.h"

#include <tuple>

namespace tfhybrid {

bool UpdateSettings::operator==(const UpdateSettings& other) const {
  const auto all = [](const UpdateSettings& its) {
    return std::tie(its.hosts, its.reduction, its.exchange, its.clipping, its.clip_limit,
                    its.local_ranks, its.host, its.form);
  };
  return schema == other.schema && all(*this) == all(other);
}

Result<Reduction> ParseReduction(const std::string& name) {
  if (name == "frequency") return Reduction::kFrequency;
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  return Status::Error(StatusCode::kInvalidArgument,
                       "reduction is 'frequency', 'sum' or 'mean'. Received: '", name, "'");
}

Result<Exchange> ParseExchange(const std::string& name) {
  if (name == "leaders") return Exchange::kLeaders;
  if (name == "owner") return Exchange::kOwner;
  if (name == "all_ranks") return Exchange::kAllRanks;
  return Status::Error(StatusCode::kInvalidArgument,
                       "exchange is 'leaders', 'owner' or 'all_ranks'. Received: '", name, "'");
}

}  // namespace tfhybrid
