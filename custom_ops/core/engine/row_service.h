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
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/owner_links.h"
#include "core/engine/version_read.h"
#include "core/exchange/connection.h"
#include "core/exchange/update_inbox.h"
#include "core/store/store.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

class RowService {
 public:
  // What a service needs from its engine.
  struct EngineCalls {
    // The table of that name, once it is open.
    std::function<Result<std::shared_ptr<OpenTable>>(const std::string& name)> table;
    // Engine::Read(), without a timeout.
    std::function<Result<std::vector<uint64_t>>(const std::vector<TableRead>& reads)> read;
    // TryReadVersion(), likewise.
    std::function<Result<std::optional<std::vector<uint64_t>>>(const std::vector<TableRead>& reads,
                                                               const CopyRows& copy)>
        try_read;
    // BatchKeys::Find(), where data nodes send batches.
    std::function<Result<uint64_t>(const std::string& table, Span<const int64_t> handles,
                                   int64_t* keys)>
        find_keys;
    // Takes in what the leader of a host says of passes; an error ends the connection.
    std::function<Status(int64_t host, Frame frame)> take_pass;
    // That leader says nothing of passes any longer.
    std::function<void(const Status& why)> passes_ended;
  };

  explicit RowService(EngineCalls engine) : engine_(std::move(engine)) {}
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
  Status AnswerRead(Connection* connection, Span<const int64_t> words, bool key_handles);
  // Sends rows while they are looked up. Returns whether all were sent; else rows have changed
  // meanwhile, and all are to be sent again.
  Result<bool> SendParts(Connection* connection, const std::vector<TableRead>& reads);
  Status AnswerScan(Connection* connection, Span<const int64_t> words);

  const EngineCalls engine_;
  UpdateInbox inbox_;
  Mutex mutex_;
  bool closed_ TFHYBRID_GUARDED_BY(mutex_) = false;
  std::list<Served> served_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ROW_SERVICE_H_
