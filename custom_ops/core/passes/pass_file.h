// PassFile: the fast tier of a pass: its keys, and their rows as owners send them.
//
//   pass-R-N   pass N of local rank R: PassSegment, PassTable [tables], PassOwner [tables, hosts];
//              then of each table its keys (int64), the batch that wants each last (int32, in
//              ascending order), a byte for each that has a row, and the rows (float [keys, dim])
//   pass-bell  BellSegment: rung by ranks when the leader is to look at their passes
//
// The rank makes its file and says what has been used; its leader fills it and keeps it fresh. Rows
// lie without decay. A pass of one rank holds only what lies on other hosts, or in files on this
// one.
#ifndef TFHYBRID_CORE_PASSES_PASS_FILE_H_
#define TFHYBRID_CORE_PASSES_PASS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/row_update.h"
#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// How far a pass is; it only grows. Written by the leader.
enum class PassState : uint64_t { kAsked = 0, kReady = 1, kFailed = 2, kLetGo = 3 };

struct PassSegment {
  SegmentHeader header;
  uint64_t tables;
  uint64_t hosts;
  uint64_t batches;
  alignas(64) uint64_t state;  // atomic: a PassState
  char failure[kMaxFailure];
  alignas(64) uint64_t ended;  // atomic, the rank's: it reads no more
};

struct PassTable {
  char name[kMaxTableName];
  uint64_t dim;
  uint64_t keys;
  uint64_t offset;            // of its keys in the file
  alignas(64) uint64_t done;  // atomic, the rank's: batches that it has used
};

// The rows of a table that one host owns.
struct PassOwner {
  uint64_t version;  // atomic: of the rows here
  Decays decays;
};

// What the passes of a host have done since its store was opened.
enum class PassCounter : int {
  kPasses,     // announced by its ranks
  kHits,       // distinct keys of lookups that a pass had
  kMisses,     // that an open pass of their table had not
  kAsked,      // rows that owners were asked for
  kCopied,     // that another pass of the host had
  kFetched,    // that came because they were asked for
  kRefreshed,  // because an update had changed them
  kBytes,      // of all frames of rows
  kWritten,    // rows of sharded tables that updates changed on this host, their owner
};
inline constexpr int kPassCounters = 9;

struct BellSegment {
  SegmentHeader header;
  alignas(64) uint64_t rung;                   // atomic
  alignas(64) uint64_t counts[kPassCounters];  // each atomic
};

// The keys of a table that a pass requests: distinct, in the order of the batch that wants them
// last.
struct RequestedKeys {
  std::string table;
  int64_t dim;
  std::vector<int64_t> keys;
  std::vector<int32_t> last;
};

class PassFile {
 public:
  static std::string Path(const std::string& directory, int local_rank, int64_t number);
  // Bytes of a pass with those keys.
  static int64_t Bytes(const std::vector<RequestedKeys>& requested, int64_t hosts);
  // The rank's: makes the file, which its leader may find from now on.
  static Result<PassFile> Create(const std::string& path, uint64_t token, int64_t number,
                                 const std::vector<RequestedKeys>& requested, int64_t hosts,
                                 int64_t batches);
  // The leader's.
  static Result<PassFile> Open(const std::string& path, uint64_t token, int64_t number);

  int64_t tables() const { return static_cast<int64_t>(segment()->tables); }
  int64_t batches() const { return static_cast<int64_t>(segment()->batches); }
  int64_t bytes() const { return file_.size(); }
  std::string name(int64_t table) const;
  int64_t dim(int64_t table) const { return static_cast<int64_t>(of(table)->dim); }
  Span<const int64_t> keys(int64_t table) const;
  const int32_t* last(int64_t table) const;
  uint8_t* has_row(int64_t table) const;
  float* rows(int64_t table) const;
  PassOwner* owner(int64_t table, int64_t host) const;

  PassState state() const;
  // Also wakes who waits for it.
  void SetState(PassState state);
  void Fail(const Status& why);
  // Why it has failed.
  Status failure() const;
  // Returns whether it is at least that.
  bool AwaitState(PassState state, int timeout_ms) const;

  bool ended() const { return __atomic_load_n(&segment()->ended, __ATOMIC_ACQUIRE) != 0; }
  void End() { StoreRelease<uint64_t>(&segment()->ended, 1); }
  int64_t done(int64_t table) const {
    return static_cast<int64_t>(__atomic_load_n(&of(table)->done, __ATOMIC_ACQUIRE));
  }
  void SetDone(int64_t table, int64_t batches) {
    StoreRelease(&of(table)->done, static_cast<uint64_t>(batches));
  }

 private:
  explicit PassFile(MappedFile file) : file_(std::move(file)) {}
  PassSegment* segment() const { return reinterpret_cast<PassSegment*>(file_.mutable_data()); }
  PassTable* of(int64_t table) const {
    return reinterpret_cast<PassTable*>(file_.mutable_data() + sizeof(PassSegment)) + table;
  }
  uint8_t* KeysAt(int64_t table) const { return file_.mutable_data() + of(table)->offset; }
  Status Check(const std::string& path) const;

  MappedFile file_;
};

// By which ranks wake their leader, and where all of them count.
class PassBell {
 public:
  // The leader's.
  static Result<std::unique_ptr<PassBell>> Create(const std::string& directory, uint64_t token);
  // A rank's; kNotFound where there is none.
  static Result<std::unique_ptr<PassBell>> Open(const std::string& directory, uint64_t token);

  void Ring();
  uint64_t rung() const;
  // Until it has been rung more often than `seen` says, or for a moment.
  void Await(uint64_t seen) const;
  void Count(PassCounter counter, int64_t more);
  int64_t CountOf(PassCounter counter) const;

 private:
  explicit PassBell(MappedFile file) : file_(std::move(file)) {}
  BellSegment* segment() const { return reinterpret_cast<BellSegment*>(file_.mutable_data()); }

  MappedFile file_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_PASS_FILE_H_
