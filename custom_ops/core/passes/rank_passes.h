// RankPasses: the passes that this rank has announced, from which its lookups take rows.
//
// A pass is consulted from its first batch on until it ends. A batch is used up once the next one
// begins or this rank posts an update of the table: keys that no later batch of the pass wants are
// not kept fresh any longer, and not found.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_PASSES_RANK_PASSES_H_
#define TFHYBRID_CORE_PASSES_RANK_PASSES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/passes/pass_file.h"
#include "core/util/mutex.h"
#include "core/util/row_layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// Distinct keys of lookups, as they met the passes.
struct PassCounts {
  int64_t passes = 0;
  int64_t hits = 0;
  int64_t misses = 0;  // while a pass of the table was open
  // Of the passes that are open now.
  int64_t standing_rows = 0;
  int64_t standing_bytes = 0;
};

class RankPasses {
 public:
  struct Rank {
    std::string directory;  // of the store
    uint64_t token;
    int local_rank;
    int64_t hosts;
    std::function<Status()> check_alive;
    std::string description = {};  // of this process, for messages
  };
  // A pass that this rank has announced.
  struct Pass {
    Pass(PassFile of, int64_t its_number, bool only, std::string its_path)
        : file(std::move(of)), number(its_number), refuses(only), path(std::move(its_path)) {}
    PassFile file;
    const int64_t number;
    const bool refuses;  // keys that were not announced
    const std::string path;
    std::vector<UniqueKeys> indices;  // by table
    bool begun = false;               // guarded by RankPasses::mutex_
  };
  // A table of a pass that is consulted. Holds the pass.
  struct PassView {
    std::shared_ptr<Pass> pass;
    int64_t table;
    int64_t done;  // batches of it that were used up when it was taken

    // Whether its rows are kept fresh still, as they were then. To be asked after they were copied.
    bool Holds() const { return pass->file.done(table) == done && !pass->file.ended(); }
    // The row of a key, or -1.
    int64_t Find(int64_t key) const;
    // Whether its owner has a row for the key, or else it is an initial value; otherwise as Copy().
    bool HasRow(int64_t row) const { return pass->file.has_row(table)[row] != 0; }
    // Copies it. REQUIRES: Await() has returned.
    void Copy(int64_t row, int64_t owner, float* embedding) const;
  };

  explicit RankPasses(Rank rank) : rank_(std::move(rank)) {}

  // The keys that belong in a pass file: distinct, and in the order that the file needs.
  // `batch_of` has the batch of each.
  static RequestedKeys Request(const std::string& table, int64_t dim, Span<const int64_t> keys,
                               const int32_t* batch_of,
                               const std::function<bool(int64_t)>& belongs);
  int64_t Bytes(const std::vector<RequestedKeys>& requested) const {
    return PassFile::Bytes(requested, rank_.hosts);
  }
  // Returns the number of the pass. `refuses`: a key that it does not have is an error.
  Result<int64_t> Announce(const std::vector<RequestedKeys>& requested, int64_t batches,
                           bool refuses);
  // A batch of a pass, from 0, is about to be used; those before it have been.
  Status Begin(int64_t number, int64_t batch);
  // Waits until its memory is given back.
  Status End(int64_t number);
  // Rows are to be overwritten from elsewhere: ends all of them.
  void EndAll();
  // This rank has posted an update of those tables.
  void CountPost(const std::vector<std::string>& tables);

  // The open passes of a table.
  std::vector<PassView> Of(const std::string& table);
  // Waits until a pass has its rows, those of `owner` as of `version`, or does not hold any longer.
  // Between slices of waiting it fails with what `check` returns.
  Status Await(const PassView& view, int64_t owner, uint64_t version,
               const std::function<Status()>& check) const;
  void CountKeys(int64_t hits, int64_t misses);
  PassCounts counts() const;
  // This rank as others name it, for messages: "rank 3 (pid 17 on a)".
  const std::string& description() const { return rank_.description; }

 private:
  Result<std::shared_ptr<Pass>> Find(int64_t number) TFHYBRID_REQUIRES(mutex_);
  Status Ring() TFHYBRID_REQUIRES(mutex_);

  const Rank rank_;
  mutable Mutex mutex_;
  std::unique_ptr<PassBell> bell_ TFHYBRID_GUARDED_BY(mutex_);  // once opened for good
  std::map<int64_t, std::shared_ptr<Pass>> passes_ TFHYBRID_GUARDED_BY(mutex_);  // by number
  int64_t next_ TFHYBRID_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> hits_{0}, misses_{0};
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_RANK_PASSES_H_
