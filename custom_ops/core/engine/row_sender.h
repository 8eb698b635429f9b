// RowSender: sends trainers the rows of their batches without being asked for them.
//
// A batch names the version that each table will have when it is looked up. Its rows go out as soon
// as the table lacks no more updates than the batch allows: batches in the order of their
// announcements, but none waits for another one, nor a table for another one. What cannot be read
// is told, so that the trainer asks for it.
//
// An embedding node's. A thread per trainer. Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_ROW_SENDER_H_
#define TFHYBRID_CORE_ENGINE_ROW_SENDER_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/placed_tables.h"
#include "core/exchange/batch_keys.h"
#include "core/exchange/connection.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

class RowSender {
 public:
  // The version of each table once all updates before the batch are applied.
  using Versions = std::map<std::string, uint64_t>;

  // Sends rows of these tables, for the keys of these batches; both outlive it.
  RowSender(const PlacedTables* tables, const BatchKeys* keys) : tables_(tables), keys_(keys) {}
  ~RowSender() { Close(); }

  // A connection to a trainer, which replaces the one before.
  void Add(int64_t rank, std::unique_ptr<Connection> connection);
  // Nothing where that trainer is not connected.
  void Announce(int64_t rank, int64_t ticket, Versions versions);
  // A table has another version.
  void Changed();
  void Close();

 private:
  struct Waiting {
    int64_t ticket;
    Versions versions;  // of tables that were not sent yet
  };
  struct Trainer {
    std::unique_ptr<Connection> connection;
    std::list<Waiting> waiting;  // guarded by mutex_
    std::thread thread;
  };
  struct Ready {
    std::shared_ptr<const BatchKeys::Batch> batch;
    int64_t ticket;
    std::vector<std::shared_ptr<OpenTable>> tables;
  };

  void Run(Trainer* trainer);
  // The next batch that has tables to send, which are not waited for any longer.
  bool Take(Trainer* trainer, Ready* ready) TFHYBRID_REQUIRES(mutex_);
  Status Send(const Ready& ready, Connection* connection) const;

  const PlacedTables* const tables_;
  const BatchKeys* const keys_;
  Mutex mutex_;
  Condition changed_;
  bool closed_ TFHYBRID_GUARDED_BY(mutex_) = false;
  uint64_t changes_ TFHYBRID_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, std::unique_ptr<Trainer>> trainers_ TFHYBRID_GUARDED_BY(mutex_);  // by rank
  std::vector<std::unique_ptr<Trainer>> replaced_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_ROW_SENDER_H_
