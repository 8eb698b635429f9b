// RowFeeds: how an owner keeps the passes of hosts fresh: the announced keys of each, and a stream
// of frames to each.
//
// Frames of one table go to a host in the order of the table's versions: the table's lock is held
// while a frame is put into the stream, and the frame has the rows of that moment. They are read
// under the lock, or, where they lie in files, before it, and again if one changed meanwhile. So a
// host that has received a frame of a version has everything of it.
//
// On a leader. Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_ROW_FEEDS_H_
#define TFHYBRID_CORE_ENGINE_ROW_FEEDS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/announced_set.h"
#include "core/engine/serial_thread.h"
#include "core/exchange/pass_frames.h"
#include "core/store/store.h"
#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class RowFeeds {
 public:
  // Brings a frame to the leader of a host, which may be this one. Called on a thread per host.
  using Deliver = std::function<void(int64_t host, FrameKind kind, Span<const int64_t> words)>;

  // `ranks`: how many each host has.
  RowFeeds(const std::vector<int64_t>& ranks, Deliver deliver);
  ~RowFeeds() { Close(); }

  // Reads the rows that a host has announced, and lets them follow updates from now on. In
  // training, rows in files go to the cache afterwards. REQUIRES: the table is not held by the
  // caller.
  void Announce(int64_t host, const std::shared_ptr<OpenTable>& table,
                const AnnouncedKeys& announced);
  // Tells a host that its announcement failed.
  void Refuse(int64_t host, const Status& why);
  // Tells all hosts that no more rows come.
  void RefuseAll(const Status& why);
  void Release(int64_t host, const AnnouncedKeys& released);
  // After an update of the table that had gradients of `keys`: sends each host those that it has
  // announced. REQUIRES: the table is the caller's alone.
  void Changed(const std::shared_ptr<OpenTable>& table,
               const std::vector<Span<const int64_t>>& keys);
  // Sends what is to be sent, and ends the threads.
  void Close();

 private:
  // The keys of a table that a host has announced.
  struct TableFeed {
    AnnouncedSet keys;
    bool fed = false;
    float decay = 1.0f;  // of rows, as it was when they were last sent
    // The table's version when keys were last announced, and how many announcements at that version
    // count as training.
    uint64_t version = 0;
    int64_t training = 0;
  };

  // Rows of a table in files, read while updates may change them. Without a frame where they lie
  // in memory or could not be read.
  struct EarlyRead {
    uint64_t sequence = 0;
    uint64_t version = 0;
    std::shared_ptr<FreshFrame> frame;
  };

  std::vector<int64_t> ToSend(const OpenTable& table, const std::vector<Span<const int64_t>>& keys,
                              TableFeed* feed) const;
  static EarlyRead ReadEarly(OpenTable* table, int64_t answers, Span<const int64_t> keys);
  static Result<std::shared_ptr<FreshFrame>> Read(TableReader* reader, int64_t answers,
                                                  Span<const int64_t> keys);
  // Whether a host announces keys for training: since its last announcements, the table was
  // updated. Each of its ranks announces once then.
  bool Trains(int64_t host, uint64_t version, TableFeed* feed) const;
  // Brings rows that a host still wants from files to the cache, so that the update that changes
  // them finds them there.
  void BringAhead(int64_t host, const std::shared_ptr<OpenTable>& table,
                  const std::vector<int64_t>& keys);
  // The rows of those keys that the host still wants; none where the cache has no room for what all
  // hosts want. REQUIRES: the table is the caller's alone.
  std::vector<int64_t> RowsToBring(int64_t host, TableWriter* writer, Span<const int64_t> keys);
  // REQUIRES: the table is the caller's alone.
  Status Send(int64_t host, OpenTable* table, int64_t answers, Span<const int64_t> keys,
              const EarlyRead& early);

  const std::vector<int64_t> ranks_;  // by host
  const Deliver deliver_;
  Mutex mutex_;
  // By host and table.
  std::vector<std::map<std::string, TableFeed>> feeds_ TFHYBRID_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<SerialThread>> threads_;  // by host
  SerialThread bringing_;
  std::atomic<bool> closing_{false};
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ROW_FEEDS_H_
