// Store: one job's tables on one host, a directory of segments in shared memory.
//
//   SHM_DIR/tfhybrid-UID.lock         HostMutex of all jobs of the user on this host
//   SHM_DIR/tfhybrid-UID-JOB/store    SegmentHeader alone: no other store has its token
//   SHM_DIR/tfhybrid-UID-JOB/rank-N   LivenessLock of local rank N; rank 0 is the leader
//   SHM_DIR/tfhybrid-UID-JOB/kept-N   what local rank N keeps beside the tables (kept_state.h)
//   SHM_DIR/tfhybrid-UID-JOB/...      the tables (layout.h)
//
// The leader creates, the others attach. A new job starts fresh: what a dead job left behind is
// removed first, by any job of the same user; a living job is never touched. The last process to
// leave removes the directory, unless it is told to leave it for the next one.
//
// Thread-safe. One Store per process and job; not usable in forked children.
#ifndef TFHYBRID_CORE_STORE_STORE_H_
#define TFHYBRID_CORE_STORE_STORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/shm/liveness.h"
#include "core/shm/mapped_file.h"
#include "core/store/kept_state.h"
#include "core/store/table_reader.h"
#include "core/store/table_writer.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

struct StoreConfig {
  std::string shm_directory = "/dev/shm";
  std::string job;  // letters, digits, '.', '_', '-'; at most 64
  int local_rank = 0;
  std::string description;  // of this process, for others' errors: "rank 3, pid 17 on host a"
  uint64_t token = 0;       // the leader's choice; the others expect it
};

// One table as this process has it open.
struct OpenTable {
  std::unique_ptr<TableReader> reader;
  Mutex writing;
  // Null unless this process is the leader.
  std::unique_ptr<TableWriter> writer TFHYBRID_PT_GUARDED_BY(writing);
  // Likewise: of its index, for lookups, which do not hold the writer.
  std::shared_ptr<KnownRows> known_rows;
  std::atomic<uint64_t> posted{
      0};  // updates this rank has taken part in: the version its lookups wait for
  // Whether keys without a row read zeros outside of training; else they read their initial values.
  std::atomic<bool> unseen_zeros{false};
  // What a lookup of this process does about keys without a row, in or outside of training.
  UnseenKeys Unseen(bool outside) const { return {outside && unseen_zeros, outside}; }
  std::atomic<bool> named{true};  // false: from a dead leader, and OpenNamed() has not asked for it
  // The table of keys that wait for admission to this one; null if none need to wait. Both have the
  // same version. This table's lock is taken first.
  std::shared_ptr<OpenTable> waiting;

  // Keys that this rank's gradients were of, and how many different ones each of its steps had.
  std::atomic<int64_t> keys{0};
  std::atomic<int64_t> distinct_keys{0};

  // This rank has taken part in one more update.
  void CountPost();
  // This rank has taken part in all updates up to `version`.
  void SetPosted(uint64_t version);
};

// Held for as long as they are used, so that a job that ends meanwhile does not unmap what is being
// read.
using OpenTables = std::vector<std::shared_ptr<OpenTable>>;

// The name of the table of the keys that wait for admission to another.
std::string WaitingName(const std::string& table_name);

// What became of a rank, and the description it gave of itself.
struct RankState {
  HolderState state;
  std::string description;
};

// Tables by name.
using TableMap = std::map<std::string, std::shared_ptr<OpenTable>>;

class Store {
 public:
  // The leader's call. `reclaimed` receives one line for each dead store that was removed.
  static Result<std::unique_ptr<Store>> Create(const StoreConfig& config,
                                               std::vector<std::string>* reclaimed);
  // A new leader's call: attaches every table of a store whose processes are all dead; its token
  // stays what it was. See core/update/recovery.h.
  static Result<std::unique_ptr<Store>> Recover(const StoreConfig& config);
  // The other ranks' call, after the leader has created the store.
  static Result<std::unique_ptr<Store>> Attach(const StoreConfig& config);
  ~Store();
  // The store is to outlive its processes: a job that is started again may recover it.
  void LeaveBehind() { left_behind_ = true; }

  const std::string& directory() const { return directory_; }
  bool is_leader() const { return config_.local_rank == 0; }
  const std::string& description() const { return config_.description; }
  int local_rank() const { return config_.local_rank; }
  uint64_t token() const { return config_.token; }

  // The leader creates the table, or finds it in a store that it recovered; any other rank
  // attaches it, waiting up to `timeout_ms` for the leader. Fails if the table found has
  // another shape than `config` asks for.
  Result<std::shared_ptr<OpenTable>> OpenNamed(const TableConfig& config, int timeout_ms);
  // The open table of that name, or null.
  std::shared_ptr<OpenTable> Find(const std::string& table_name) const;
  // All of them.
  TableMap tables() const;
  // A number that tells the versions of all tables that this rank has taken part in, the next one
  // for those in `updated`, from all others.
  uint64_t TablesDigest(const OpenTables& updated) const;

  // What this rank keeps beside the tables, made anew or as a dead process left it; null before
  // that and after ForgetKept(). To be used by one thread at a time.
  Status MakeKept(const std::string& configuration, int64_t bytes);
  Status FindKept();
  void ForgetKept();
  std::shared_ptr<KeptState> kept() const;

  // Ok while that rank of this host lives, kPeerDied with its description afterwards, whether it
  // died or left: it will not do what it is waited for.
  Status CheckRank(int local_rank) const;
  // From now on CheckRank() fails, so that nobody waits for a rank any longer.
  void EndWaits() { ended_ = true; }
  Status CheckLeader() const { return CheckRank(0); }
  // What became of that rank of this host.
  RankState StateOf(int local_rank) const;

 private:
  Store(const StoreConfig& config, std::string directory, LivenessLock alive, MappedFile segment);

  static Result<std::unique_ptr<Store>> Claim(const StoreConfig& config);
  Status AttachTables();
  // `waiting`: the open table of the keys that wait for admission to it; null if none need to.
  Result<std::shared_ptr<OpenTable>> OpenOne(const TableConfig& config,
                                             const std::shared_ptr<OpenTable>& waiting,
                                             int timeout_ms);
  std::string KeptPath() const;
  Result<std::unique_ptr<TableReader>> WaitForTable(const TableConfig& config,
                                                    int timeout_ms) const;

  const StoreConfig config_;
  const std::string directory_;
  LivenessLock alive_;
  const MappedFile segment_;
  std::atomic<bool> left_behind_{false};
  std::atomic<bool> ended_{false};
  mutable Mutex mutex_;
  TableMap tables_ TFHYBRID_GUARDED_BY(mutex_);
  std::shared_ptr<KeptState> kept_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_STORE_H_
