// Topology: the host of each rank of a job.
#ifndef TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_
#define TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tfhybrid {

struct Topology {
  std::vector<int64_t> hosts = {0};  // of each rank: 0, 1, ...; ranks of a host follow each other
  int64_t host = 0;                  // of this process

  int64_t Hosts() const { return hosts.back() + 1; }
  int64_t LocalRanks() const { return std::count(hosts.begin(), hosts.end(), host); }
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PLACEMENT_TOPOLOGY_H_
