// RowService: the network interface of an engine that owns rows. Reads rows for ranks of other
// hosts, and receives their leaders' updates.
//
// It has a thread per connection, which computes like TensorFlow's threads. A reader waits for the
// version that it requested, and for no rank. An invalid request is answered with the reason, and
// the connection stays open. Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_ROW_SERVICE_H_
#define TFHYBRID_CORE_ENGINE_ROW_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "core/engine/host_passes.h"
#include "core/engine/owner_links.h"
#include "core/engine/placed_tables.h"
#include "core/exchange/batch_keys.h"
#include "core/exchange/connection.h"
#include "core/exchange/update_inbox.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

class RowService {
 public:
  // `keys`: of batches that data nodes send here. All of them outlive the service.
  RowService(const PlacedTables* tables, const BatchKeys* keys, HostPasses* passes)
      : tables_(tables), keys_(keys), passes_(passes) {}
  ~RowService() { Close(); }

  UpdateInbox& inbox() { return inbox_; }
  // Serves a connection of `host` on a thread of its own until it ends.
  void Serve(int64_t host, LinkPurpose purpose, std::unique_ptr<Connection> connection);
  // Connections on which ranks of other hosts may still read rows.
  int64_t CountOfReaders();
  // Ends all connections and their threads.
  void Close();

 private:
  struct Served {
    LinkPurpose purpose;
    std::unique_ptr<Connection> connection;
    std::atomic<bool> done{false};
    std::thread thread;
  };

  void Run(int64_t host, LinkPurpose purpose, Served* served);
  // Runs until the connection ends, and returns why.
  Status Answer(int64_t host, Connection* connection);
  Status AnswerRead(Connection* connection, FrameKind kind, Span<const int64_t> words);
  // Sends rows while they are looked up, and last the versions and `marks`. Returns whether all
  // were sent; else rows have changed meanwhile, and all are to be sent again.
  Result<bool> SendParts(Connection* connection, const std::vector<TableRead>& reads,
                         const std::vector<int64_t>& marks);
  Status AnswerScan(Connection* connection, Span<const int64_t> words);

  const PlacedTables* const tables_;
  const BatchKeys* const keys_;
  HostPasses* const passes_;
  UpdateInbox inbox_;
  Mutex mutex_;
  bool closed_ TFHYBRID_GUARDED_BY(mutex_) = false;
  std::list<Served> served_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ROW_SERVICE_H_
