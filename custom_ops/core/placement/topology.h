// Topology: the host of each rank of a job, and the embedding nodes after them.
//
// An embedding node counts as a host without ranks. If there are any, only they own the rows of
// sharded tables; otherwise each host owns its shard.
#ifndef TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_
#define TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tfhybrid {

struct Topology {
  std::vector<int64_t> hosts = {0};  // of each rank: 0, 1, ...; ranks of a host follow each other
  int64_t host = 0;                  // of this process
  int64_t nodes = 0;                 // embedding nodes: the hosts behind those of ranks

  int64_t RankHosts() const { return hosts.back() + 1; }
  int64_t Hosts() const { return RankHosts() + nodes; }
  bool IsNode() const { return host >= RankHosts(); }
  int64_t FirstOwner() const { return nodes > 0 ? RankHosts() : 0; }
  int64_t Owners() const { return Hosts() - FirstOwner(); }
  int64_t LocalRanks() const { return std::count(hosts.begin(), hosts.end(), host); }
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_
