// HostSum: sums of dense tensors over the ranks of a host, in shared memory.
//
//   dense.R.mail       what rank R brings: a signature, then its tensors, weighed
//   dense.R.sum.mail   its stripe: rank R adds up one of as many parts of the sums as there are
//                      ranks, in the order of ranks
//   dense.all.mail     where there are other hosts: what the leader has got of all of them
//
// All are mailboxes (core/update/mailbox.h). All ranks do the same sums in the same order. A rank
// writes its tensors again only after it has taken all stripes of the sum before, which were added
// up of everyone's tensors; and its stripe only after all ranks have brought their next tensors, so
// have taken it. So a mailbox is never written while another rank reads it.
//
// The order of ranks is fixed, so a sum has the same bits on every rank, and in every run.
//
// Not thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_HOST_SUM_H_
#define TFHYBRID_CORE_EXCHANGE_HOST_SUM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/update/mailbox.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct DenseTensor {
  enum class Type { kFloat, kDouble };

  Type type = Type::kFloat;
  int64_t elements = 0;
  const void* in = nullptr;
  void* out = nullptr;  // may be `in`

  int64_t ElementBytes() const { return type == Type::kFloat ? 4 : 8; }
};

// The first tensor of a sum is `told`: floats that are summed unchanged. Its first float is the
// weight of this rank's other tensors, which become averages.
using DenseTensors = std::vector<DenseTensor>;

struct HostSumRanks {
  int64_t rank = 0;  // this process's, on its host
  int64_t count = 1;
  bool other_hosts = false;
};

class HostSum {
 public:
  // `path` is the beginning of all file names. `check_alive` tells whether a rank of this host
  // still lives.
  static Result<std::unique_ptr<HostSum>> Open(const std::string& path, uint64_t token,
                                               const HostSumRanks& ranks,
                                               std::function<Status(int64_t rank)> check_alive);

  // Waits for all ranks of the host, and fills `out`: with averages, or, on the leader where there
  // are other hosts, with the sums of this host, from which Broadcast() follows. Ranks whose
  // signatures differ wait until one of them ends: they do not belong together, and whoever watches
  // the job says so. A sum that fails ends all later ones.
  Status Sum(uint64_t signature, const DenseTensors& tensors);

  // The leader's, where there are other hosts: makes averages of the sums over all hosts, for all
  // ranks of this one. They wait for it as long as the leader lives; if it sums again instead, all
  // of them fail.
  Status Broadcast(const DenseTensors& tensors);

 private:
  HostSum(std::string path, uint64_t token, const HostSumRanks& ranks,
          std::function<Status(int64_t)> check_alive);

  Status TrySum(uint64_t signature, const DenseTensors& tensors);
  // Tells the ranks that would wait for this rank's part of this sum that it will not come.
  void TellFailure();
  Status Bring(uint64_t signature, const DenseTensors& tensors);
  // Every rank's tensors, behind their signatures.
  Result<std::vector<const uint8_t*>> AwaitAlike(uint64_t signature, const DenseTensors& tensors);
  Status AddStripe(const DenseTensors& tensors, const std::vector<const uint8_t*>& brought);
  // Fills `out` of the stripes.
  Status TakeStripes(const DenseTensors& tensors);
  // Fills `out` of what the leader has broadcast.
  Status TakeBroadcast(const DenseTensors& tensors);
  // Returns why this rank cannot wait any longer.
  Status AwaitEnd() const;
  Status AwaitPosted(const std::string& name, int64_t rank, std::unique_ptr<MailboxReader>* reader);
  bool is_leader() const { return ranks_.rank == 0; }

  const std::string path_;
  const uint64_t token_;
  const HostSumRanks ranks_;
  const std::function<Status(int64_t)> check_alive_;
  std::unique_ptr<Mailbox> brought_, stripe_;
  std::unique_ptr<Mailbox> broadcast_;  // the leader's, where there are other hosts
  std::vector<std::unique_ptr<MailboxReader>> brought_by_, stripe_of_;  // by rank
  std::unique_ptr<MailboxReader> broadcast_by_leader_;
  uint64_t sums_ = 0;
  uint64_t broadcasts_ = 0;  // sums of which nothing is left to broadcast
  Status failure_;           // of an earlier sum
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_HOST_SUM_H_
