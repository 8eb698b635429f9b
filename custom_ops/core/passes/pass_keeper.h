// PassKeeper: fills the passes of a host's ranks with rows, and keeps them fresh. On the leader.
//
// A key that an open pass of any rank has already is not asked for again: its row is copied, or
// comes into both when it comes. What owners send is written into every pass that has the key. Once
// the last pass that wants a key has used it, its owner is told.
//
// Rows change only while no rank of this host reads them: an owner applies the update after the one
// that a rank has posted once that rank has posted again (docs/design/0021-passes.md).
//
// Thread-safe. Its thread waits for ranks that announce, never for owners.
#ifndef TFHYBRID_CORE_PASSES_PASS_KEEPER_H_
#define TFHYBRID_CORE_PASSES_PASS_KEEPER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/exchange/pass_frames.h"
#include "core/passes/pass_file.h"
#include "core/placement/allocation.h"
#include "core/util/mutex.h"
#include "core/util/phase_times.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class PassKeeper {
 public:
  struct Host {
    std::string directory;  // of the store
    uint64_t token;
    int local_ranks;
    int64_t hosts;
    // Who owns the keys of a table.
    std::function<std::shared_ptr<const Allocation>(const std::string& table)> allocation;
    // Brings them to an owner, which may be this host.
    std::function<Status(int64_t owner, const AnnouncedKeys& keys)> announce, release;
  };

  explicit PassKeeper(Host host) : host_(std::move(host)) {}
  ~PassKeeper() { Close(); }
  // Removes what a dead job left, and begins to take announcements.
  Status Start();
  void Close();

  // Rows that an owner has sent.
  Status Receive(int64_t owner, Span<const int64_t> words);
  // It sends no more, because of `why`: whoever waits for it is told.
  void Fail(const Status& why);
  // Tells owners which keys the ranks have used for the last time. To be called once all ranks of
  // the host have posted an update, before its messages are sent.
  Status ReleaseUsed();
  // Lets all passes go: rows were overwritten from elsewhere.
  void LetAllGo();
  // An update has changed so many rows here.
  void CountWritten(int64_t rows) { bell_->Count(PassCounter::kWritten, rows); }
  int64_t CountOf(PassCounter counter) const { return bell_->CountOf(counter); }

 private:
  struct PassTableState {
    std::string name;
    UniqueKeys index;
    std::vector<uint8_t> arrived;  // by key
    std::vector<int64_t> asked;    // the announcement whose answer brings each
    int64_t released = 0;          // keys, from the first on
  };
  struct OpenPass {
    explicit OpenPass(PassFile of) : file(std::move(of)) {}
    PassFile file;
    std::vector<PassTableState> tables;
    int64_t missing = 0;
    const PhaseClock::time_point asked_at = PhaseClock::now();
  };
  using TableOwner = std::pair<std::string, int64_t>;  // a table, and a host that owns rows of it
  using KeysByOwner = std::map<TableOwner, std::vector<int64_t>>;

  void Run();
  void TakeNew(int local_rank);
  void Take(std::unique_ptr<OpenPass> pass);
  // `*asking` receives the keys that owners are to be asked for.
  void Add(OpenPass* pass, KeysByOwner* asking) TFHYBRID_REQUIRES(mutex_);
  // Copies the row of a key from a pass that has it; whether one does.
  bool CopyFromOther(OpenPass* pass, int64_t table, int64_t key) TFHYBRID_REQUIRES(mutex_);
  // The tables of its name in other passes.
  std::vector<const PassTableState*> Others(const PassTableState& table) const
      TFHYBRID_REQUIRES(mutex_);
  // `wanted` says of each key afterwards whether a pass wants it.
  Status Write(int64_t owner, const FreshRows& fresh, uint8_t* wanted) TFHYBRID_REQUIRES(mutex_);
  static void WriteRows(const FreshRows& fresh, OpenPass* pass, int64_t table, uint8_t* wanted);
  // All keys of a pass up to what its rank has used; all where it has ended.
  void Release(OpenPass* pass, KeysByOwner* released) TFHYBRID_REQUIRES(mutex_);
  void LetGo(OpenPass* pass, KeysByOwner* released) TFHYBRID_REQUIRES(mutex_);
  void Tidy();
  Status Tell(const std::function<Status(int64_t owner, const AnnouncedKeys& keys)>& tell,
              const KeysByOwner& keys, int64_t number);

  const Host host_;
  // Made beforehand: memory may have run out.
  const Status out_of_memory_ =
      Status::Error(StatusCode::kResourceExhausted, "Out of memory for a pass");
  std::unique_ptr<PassBell> bell_;
  std::atomic<bool> closed_{false};
  std::thread thread_;
  std::vector<int64_t> next_;  // pass of each local rank; the thread's
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<OpenPass>> passes_ TFHYBRID_GUARDED_BY(mutex_);
  // As of the last frame of each.
  std::map<TableOwner, PassOwner> owners_ TFHYBRID_GUARDED_BY(mutex_);
  int64_t announcements_ TFHYBRID_GUARDED_BY(mutex_) = 0;
  Status failed_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_PASS_KEEPER_H_
