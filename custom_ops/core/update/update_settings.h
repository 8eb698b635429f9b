// UpdateSettings: what stays the same from update to update of an optimizer.
#ifndef TFHYBRID_CORE_UPDATE_UPDATE_SETTINGS_H_
#define TFHYBRID_CORE_UPDATE_UPDATE_SETTINGS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/row_update.h"
#include "core/placement/allocation.h"
#include "core/placement/topology.h"
#include "core/update/gradient_message.h"
#include "core/util/status.h"

namespace tfhybrid {

// What the sum of a key's gradients over the ranks is divided by. Numbers are stored in journals.
enum class Reduction : uint32_t {
  kFrequency = 0,  // the number of ranks in which the key occurred
  kSum = 1,        // 1
  kMean = 2,       // the samples of all ranks; sums come weighted by each rank's samples
};

Result<Reduction> ParseReduction(const std::string& name);

// How gradients travel between hosts. Numbers are stored in journals.
enum class Exchange : uint32_t {
  kLeaders = 0,   // each leader merges those of its host and sends them to all other leaders
  kOwner = 1,     // so too, but each key to one leader, who merges it and sends it to the others
  kAllRanks = 2,  // every rank sends its own to all ranks, unmerged
};

Result<Exchange> ParseExchange(const std::string& name);

// What users choose of an update, in their words.
struct UpdateChoices {
  std::string exchange, reduction;
  std::string wire_dtype;  // what gradients are rounded to in messages between hosts
  std::string clipping;
  float clip_limit;
};

// For each table, the owners of its keys; null if every host has all rows.
using Allocations = std::vector<std::shared_ptr<const Allocation>>;

struct UpdateSettings {
  // `allocations`: one per table of the schema.
  static Result<UpdateSettings> Make(MessageSchema schema, const Topology& topology,
                                     const UpdateChoices& choices, Allocations allocations);

  MessageSchema schema;
  std::vector<int64_t> hosts;  // of each message that is applied; those of a host follow each other
  Reduction reduction = Reduction::kFrequency;
  Exchange exchange = Exchange::kLeaders;
  Clipping clipping = Clipping::kNone;
  float clip_limit = 0.0f;
  bool sharded = false;  // whether a table has rows that this host has not
  // Not known to journals.
  int64_t nodes = 0;             // embedding nodes: parties behind the hosts, without messages
  int64_t local_ranks = 0;       // that post to the leader
  int64_t host = 0;              // the number of this one
  int64_t form = 0;              // of messages between hosts
  Allocations allocations = {};  // by which a host's message is split among owners, if it is

  bool operator==(const UpdateSettings& other) const;
  // Whether leaders exchange what they merged; where tables are sharded, by the row service.
  bool BetweenLeaders() const {
    return exchange != Exchange::kAllRanks && (sharded || hosts.front() != hosts.back());
  }
  // Hosts and embedding nodes. REQUIRES: BetweenLeaders().
  int64_t Parties() const { return static_cast<int64_t>(hosts.size()) + nodes; }
  // Whether the ranks' own mailboxes are applied; else the one of all.
  bool FromRanks() const { return exchange != Exchange::kAllRanks && !BetweenLeaders(); }
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_UPDATE_SETTINGS_H_
