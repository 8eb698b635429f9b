// HostPasses: the passes that a rank has announced (core/passes/rank_passes.h) and, on the leader
// of one of several hosts, how its host's passes get rows and how it keeps those of other hosts
// fresh (docs/design/0021-passes.md).
//
// Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_HOST_PASSES_H_
#define TFHYBRID_CORE_ENGINE_HOST_PASSES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/meetings.h"
#include "core/engine/owner_links.h"
#include "core/engine/placed_tables.h"
#include "core/engine/row_feeds.h"
#include "core/engine/serial_thread.h"
#include "core/passes/pass_keeper.h"
#include "core/passes/rank_passes.h"
#include "core/update/host_update.h"

namespace tfhybrid {

class HostPasses {
 public:
  // The keys of a table in a pass of this rank.
  struct PassKeys {
    std::string table;
    Span<const int64_t> keys;
    const int32_t* batch_of;  // of each key
  };
  // A pass of those keys, and how many bytes of shared memory it needs.
  struct AskedPass {
    std::vector<RequestedKeys> requested;
    int64_t bytes;
  };

  // All arguments outlive this object.
  HostPasses(const PlacedTables* tables, OwnerLinks* links, Meetings* meetings);
  ~HostPasses() { Close(); }
  // Begins to take what ranks of this host and leaders of other hosts announce, if this process
  // leads one of several hosts.
  Status Start();
  // Sends what is to be sent, and ends the threads.
  void Close();

  Result<AskedPass> Plan(const std::vector<PassKeys>& keys) const;
  // Returns its number.
  Result<int64_t> Announce(const AskedPass& asked, int64_t batches, bool refuses);
  // A batch of it begins, from 0.
  Status BeginBatch(int64_t pass, int64_t batch);
  // Waits until the leader has let it go, which is recorded in the meetings.
  Status End(int64_t pass);
  // Rows are to be overwritten from elsewhere: passes have no use any longer.
  void EndAll();
  RankPasses& rank() { return rank_; }
  // Zeros where this process does not lead its host, or there is one host.
  int64_t CountOf(PassCounter counter) const;

  // Takes in what the leader of a host says of passes; an error ends the connection.
  Status Take(int64_t host, Frame frame);
  // That leader says nothing of passes any longer.
  void Fail(const Status& why);
  // As PassKeeper::ReleaseUsed(). REQUIRES: this process leads one of several hosts.
  Status ReleaseUsed() { return keeper_->ReleaseUsed(); }
  // Lets the passes of hosts follow an update of those tables that was applied. REQUIRES: the
  // tables are the caller's alone.
  void Follow(const OpenTables& tables, const HostUpdate& update);
  // Tells all hosts that no more rows come.
  void RefuseAll(const Status& why);

 private:
  Status TakeAnnouncement(int64_t host, Span<const int64_t> words);
  // To an owner, which may be this host.
  Status TellOwner(int64_t owner, FrameKind kind, AnnouncedKeys keys);
  // To the leader of a host, which may be this one.
  void Deliver(int64_t host, FrameKind kind, Span<const int64_t> words);

  const PlacedTables* const tables_;
  OwnerLinks* const links_;
  Meetings* const meetings_;
  RankPasses rank_;
  std::unique_ptr<RowFeeds> feeds_;     // null where there is one host, or in another rank
  std::unique_ptr<PassKeeper> keeper_;  // likewise
  // Where what a host announces is read; by host, likewise.
  std::vector<SerialThread> announced_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_HOST_PASSES_H_
