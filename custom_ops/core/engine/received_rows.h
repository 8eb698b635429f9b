// ReceivedRows: the rows of batches that owners send a trainer unasked (core/engine/row_sender.h).
//
// The trainer says of each batch which version each table will have when it is looked up, and how
// many updates rows may lack. A lookup that needs that version waits for them; one that needs
// another version asks the owners. So what is sent changes nothing but who speaks first.
//
// A thread per owner. Thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_RECEIVED_ROWS_H_
#define TFHYBRID_CORE_ENGINE_RECEIVED_ROWS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/exchange/batch_frames.h"
#include "core/exchange/connection.h"
#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class ReceivedRows {
 public:
  // The rows that one owner sent for one table of a batch.
  struct Rows {
    std::shared_ptr<const WordBuffer> frame;  // where they lie
    SentTable table;
    bool failed;
  };

  ~ReceivedRows() { Close(); }

  // A connection to an owner, which replaces the one before: its rows have moved.
  void Add(int64_t owner, std::unique_ptr<Connection> connection);
  // Owners will send the rows of a batch: of each of these tables, at that version, or up to
  // `staleness` updates before it. Rows of other tables are asked for, which may lack as many.
  void Expect(int64_t ticket, std::map<std::string, uint64_t> versions, uint64_t staleness);
  // Rows of all batches so far are asked for, which may lack as many updates.
  void ExpectNone();
  void Forget(Span<const int64_t> tickets);
  // Whether all owners send a table's rows of a batch, of that version.
  bool Expects(int64_t ticket, const std::string& table, uint64_t version) const;
  // How many updates the rows of these key handles may lack.
  uint64_t StalenessOf(Span<const int64_t> handles) const;
  // Waits for them. Between slices of waiting, what `check_alive` returns ends the wait.
  Result<Rows> Await(int64_t ticket, const std::string& table, int64_t owner,
                     const std::function<Status()>& check_alive) const;
  void Close();

 private:
  // Ticket, table, owner.
  using RowsId = std::tuple<int64_t, std::string, int64_t>;
  struct Owner {
    std::unique_ptr<Connection> connection;
    std::thread thread;
  };

  void Receive(int64_t owner, Connection* connection);
  Status Take(int64_t owner, Frame frame);

  struct Expected {
    std::map<std::string, uint64_t> versions;  // by table
    uint64_t staleness;
  };

  std::atomic<bool> stale_{false};  // some batch allows that updates are missing
  mutable Mutex mutex_;
  mutable Condition changed_;
  bool closed_ TFHYBRID_GUARDED_BY(mutex_) = false;
  std::map<int64_t, Expected> expected_ TFHYBRID_GUARDED_BY(mutex_);  // by ticket
  std::map<RowsId, Rows> rows_ TFHYBRID_GUARDED_BY(mutex_);
  std::map<int64_t, Status> gone_ TFHYBRID_GUARDED_BY(mutex_);  // owners
  std::map<int64_t, std::unique_ptr<Owner>> owners_ TFHYBRID_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Owner>> replaced_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_RECEIVED_ROWS_H_
