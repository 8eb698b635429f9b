// Spreads shared memory over the memory nodes of a host.
//
// Every rank reads every row, on whatever node it runs. By default memory lies on the leader's node
// alone: far from half of the readers, and behind the channels of one node.
#ifndef TFHYBRID_CORE_SHM_NUMA_H_
#define TFHYBRID_CORE_SHM_NUMA_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tfhybrid {

// The nodes of a list as the kernel writes it ("0-1,4"), one bit each; empty if it is not one.
std::vector<uint64_t> ParseNodes(const std::string& list);

// Lets the pages of a shared mapping that are reserved from now on take turns on `nodes`. The file
// keeps that for all who map it. Returns 0 or errno.
int InterleaveOver(const std::vector<uint64_t>& nodes, void* data, int64_t bytes);

// Over all nodes of this host, where it has more than one. Best effort: a container may forbid it.
void Interleave(void* data, int64_t bytes);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_NUMA_H_
