#include "core/shm/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

namespace tfhybrid {
namespace {

constexpr int64_t kMaxNodes = 1024;
constexpr int64_t kWordBits = 64;

const std::vector<uint64_t>& NodesOfThisHost() {
  static const std::vector<uint64_t>* const nodes = [] {
    std::ifstream file("/sys/devices/system/node/has_memory");
    std::string list;
    std::getline(file, list);
    return new std::vector<uint64_t>(ParseNodes(list));
  }();
  return *nodes;
}

}  // namespace

std::vector<uint64_t> ParseNodes(const std::string& list) {
  std::vector<uint64_t> nodes;
  std::istringstream stream(list);
  for (std::string range; std::getline(stream, range, ',');) {
    std::istringstream numbers(range);
    int64_t first = -1, last = -1;
    char dash = 0;
    if (!(numbers >> first)) return {};
    const bool one = !(numbers >> dash);
    if (one) last = first;
    if (!one && (dash != '-' || !(numbers >> last))) return {};
    if (first < 0 || last < first || last >= kMaxNodes) return {};
    nodes.resize(std::max(nodes.size(), static_cast<size_t>(last / kWordBits + 1)));
    for (int64_t node = first; node <= last; ++node) {
      nodes[static_cast<size_t>(node / kWordBits)] |= uint64_t{1} << (node % kWordBits);
    }
  }
  return nodes;
}

int InterleaveOver(const std::vector<uint64_t>& nodes, void* data, int64_t bytes) {
  // The kernel reads one bit fewer than it is told.
  const auto bits = static_cast<unsigned long>(nodes.size() * kWordBits + 1);
  return syscall(SYS_mbind, data, bytes, MPOL_INTERLEAVE, nodes.data(), bits, 0) == 0 ? 0 : errno;
}

void Interleave(void* data, int64_t bytes) {
  int count = 0;
  for (const uint64_t word : NodesOfThisHost()) count += __builtin_popcountll(word);
  if (count > 1) InterleaveOver(NodesOfThisHost(), data, bytes);
}

}  // namespace tfhybrid
