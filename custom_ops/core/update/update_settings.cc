#include "core/update/update_settings.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tfhybrid {

Result<UpdateSettings> UpdateSettings::Make(MessageSchema schema, const Topology& topology,
                                            const UpdateChoices& choices, Allocations allocations) {
  UpdateSettings made;
  made.schema = std::move(schema);
  TFHYBRID_ASSIGN_OR_RETURN(made.exchange, ParseExchange(choices.exchange));
  TFHYBRID_ASSIGN_OR_RETURN(made.reduction, ParseReduction(choices.reduction));
  TFHYBRID_ASSIGN_OR_RETURN(made.clipping, ParseClipping(choices.clipping));
  made.clip_limit = choices.clip_limit;
  if (choices.wire_dtype != "float32" && choices.wire_dtype != "bfloat16") {
    return Status::Error(StatusCode::kInvalidArgument,
                         "wire_dtype is 'float32' or 'bfloat16'. Received: '", choices.wire_dtype,
                         "'");
  }
  made.form = choices.wire_dtype == "bfloat16" ? kBfloat16 : 0;
  made.hosts = topology.hosts;
  made.host = topology.host;
  made.nodes = topology.nodes;
  made.local_ranks = topology.LocalRanks();
  for (const auto& allocation : allocations) made.sharded = made.sharded || allocation != nullptr;
  if (made.BetweenLeaders()) {
    // One message per host is applied.
    made.hosts.erase(std::unique(made.hosts.begin(), made.hosts.end()), made.hosts.end());
  }
  const auto owners = static_cast<int64_t>(made.hosts.size());
  if (made.sharded) {
    if (made.exchange == Exchange::kAllRanks) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "Sharded tables are updated by their owners alone: exchange is "
                           "'leaders'. Received: 'all_ranks'");
    }
    made.exchange = Exchange::kLeaders;  // replicated tables beside them are everybody's
  } else if (made.exchange == Exchange::kOwner) {
    for (size_t t = 0; t < allocations.size(); ++t) {
      allocations[t] = Allocation::Even(made.schema.tables[t], owners);
    }
  }
  made.allocations = std::move(allocations);
  return made;
}

bool UpdateSettings::operator==(const UpdateSettings& other) const {
  const auto all = [](const UpdateSettings& its) {
    return std::tie(its.hosts, its.reduction, its.exchange, its.clipping, its.clip_limit, its.nodes,
                    its.local_ranks, its.host, its.form, its.sharded);
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
