// FetchedRows: the rows of sharded tables that a lookup wants, brought together in this process,
// each key once. They come from an announced pass, from shared memory if this host owns them, and
// else from their owners.
//
// Immutable once fetched, and then thread-safe.
#ifndef TFHYBRID_CORE_ENGINE_FETCHED_ROWS_H_
#define TFHYBRID_CORE_ENGINE_FETCHED_ROWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/bags.h"
#include "core/compute/unique_keys.h"
#include "core/engine/owner_links.h"
#include "core/engine/received_rows.h"
#include "core/exchange/row_frames.h"
#include "core/passes/rank_passes.h"
#include "core/placement/allocation.h"
#include "core/store/store.h"
#include "core/util/parallel.h"
#include "core/util/row_layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

// A feature of a lookup.
struct FeatureRead {
  std::shared_ptr<OpenTable> table;
  std::shared_ptr<const Allocation> allocation;  // null: every host has all rows
  Span<const int64_t> keys;
  bool key_handles = false;  // the keys are key handles (core/placement/key_handle.h)
  // Outside of training, where keys without a row read what OpenTable says. All features of a
  // lookup are alike.
  bool outside = false;
  // Where the keys were numbered before, all features of the table together.
  const uint32_t* numbers = nullptr;  // of each key
  Span<const int64_t> distinct = {};  // of the table
};

// The version of the rows of a batch that a lookup took from an owner.
struct RowRead {
  int64_t ticket;
  std::string table;
  int64_t owner;
  uint64_t posted;   // with every update before the batch
  uint64_t version;  // that the rows had
};

class FetchedRows {
 public:
  // Where rows come from, beside this host's tables.
  struct Sources {
    OwnerLinks* links;
    RankPasses* passes;
    const ReceivedRows* received;
    std::function<Status()> check_alive;  // between slices of waiting for what owners send
  };

  // Reads the rows that the features of sharded tables need, on `host`, at the version that this
  // rank has posted, or lacking as many updates as their batch allows. REQUIRES: this host's tables
  // have reached it.
  static Result<std::shared_ptr<const FetchedRows>> Fetch(const std::vector<FeatureRead>& features,
                                                          int64_t host, const Sources& sources,
                                                          const ParallelFor& parallel_for);

  // Returns the tickets of the batches whose key handles were looked up.
  std::vector<int64_t> Tickets() const;
  // What was taken of batches whose rows may lack updates.
  std::vector<RowRead> Reads() const;
  // Whether a feature's table is sharded, and its rows are therefore in here.
  bool Has(size_t feature) const { return of_features_[feature].table != kNone; }
  // Copies the embeddings of its keys [first, last), and counts them if they were read outside of
  // training. REQUIRES: it has them.
  void Lookup(size_t feature, int64_t first, int64_t last, RowCursor<float> out) const;
  // Combines those of bags [first, last).
  void LookupBags(size_t feature, const Bags& bags, int64_t first, int64_t last,
                  RowCursor<float> out) const;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  // Where a key was found.
  struct FromPass {
    uint32_t view;
    uint32_t owner;
    int64_t row;
  };
  // A table, for any number of its features.
  struct TableFetch {
    std::shared_ptr<OpenTable> table;
    std::shared_ptr<const Allocation> allocation;
    bool key_handles;                     // all keys are
    bool outside;                         // of training
    bool sent = false;                    // owners sent the rows unasked
    uint64_t posted = 0;                  // the version that this rank has posted
    uint64_t staleness = 0;               // updates that rows may lack
    std::vector<uint64_t> versions = {};  // of each owner's rows, if keys are key handles
    std::vector<size_t> features;
    UniqueKeys unique;
    std::vector<int64_t> keys;      // distinct, owner by owner
    std::vector<int64_t> starts;    // of each owner's keys, then of those from passes
    std::unique_ptr<float[]> rows;  // [keys, dim]
    std::vector<uint8_t> has_row;   // of each key, if this is outside of training; else empty
    std::vector<RankPasses::PassView> views;
    std::vector<FromPass> from_passes;  // by key
    int64_t missed = 0;                 // keys that passes should have had, and not

    int64_t dim() const { return table->reader->dim(); }
    int64_t Count(int64_t owner) const {
      return starts[static_cast<size_t>(owner) + 1] - starts[static_cast<size_t>(owner)];
    }
    // Keys that an owner is asked for.
    int64_t Asked(int64_t owner) const { return sent ? 0 : Count(owner); }
    Span<const int64_t> KeysOf(int64_t owner) const {
      return {keys.data() + starts[static_cast<size_t>(owner)], Count(owner)};
    }
    float* RowsOf(int64_t owner) const {
      return rows.get() + starts[static_cast<size_t>(owner)] * dim();
    }
    // Null in training.
    uint8_t* MarksOf(int64_t owner) {
      return outside ? has_row.data() + starts[static_cast<size_t>(owner)] : nullptr;
    }
    int64_t AskedMarks(int64_t owner) const { return outside ? WordsOfMarks(Asked(owner)) : 0; }
  };
  struct OfFeature {
    size_t table = kNone;
    std::vector<uint32_t> rows;  // of each key
  };

  Status Run(const std::vector<FeatureRead>& features, int64_t host, const Sources& sources,
             const ParallelFor& parallel_for);
  // Copies the rows that owners send unasked of the version that is wanted.
  Status TakeSent(const Sources& sources, TableFetch* fetch) const;
  // Ok if no rows lack more updates than they may.
  Status CheckVersions(const OwnerLinks& links) const;
  void Plan(const std::vector<FeatureRead>& features, int64_t host, RankPasses* passes,
            const ParallelFor& parallel_for);
  // Returns the distinct keys of a table, and sets each key's number among them as its row.
  Span<const int64_t> DistinctKeys(const std::vector<FeatureRead>& features, TableFetch* fetch);
  void Number(const std::vector<FeatureRead>& features, int64_t host, TableFetch* fetch);
  // Orders the keys by these owners, and their rows likewise.
  void DivideByOwner(Span<const int64_t> distinct, const std::vector<uint16_t>& owners,
                     TableFetch* fetch);
  // The number of a key's owner, or the number that stands for passes.
  int64_t SourceOf(int64_t key, int64_t host, TableFetch* fetch) const;
  static Status CheckKeyHandles(const std::vector<FeatureRead>& features, int64_t host);
  Status CheckMisses(int64_t host, const RankPasses& passes) const;
  Status CopyFromPasses(const RankPasses& passes);
  // Overwrites the initial values of keys without a row where they read zeros.
  void ClearUnseen();
  void CountKeys(const TableFetch& fetch, const uint32_t* begin, const uint32_t* end) const;
  bool PassesHold() const;
  Status Ask(int64_t owner, Connection* connection) const;
  // How much of an owner's answer is there.
  struct Arrived {
    int64_t all = 0;  // words
    size_t table = 0;
    int64_t of_table = 0;  // words, of that one
  };
  Status Receive(int64_t owner, Connection* connection);
  // What an answer says of each table in front of the last rows.
  Status ReceiveHead(int64_t owner, Connection* connection);
  // The next `words` of its rows. REQUIRES: so many are left.
  Status ReceiveRows(int64_t owner, int64_t words, Arrived* arrived, Connection* connection) const;
  // Returns why an answer does not have `wanted` words.
  static Status Refuse(const FrameHeader& header, int64_t wanted, Connection* connection);
  const float* Row(const OfFeature& of, const TableFetch& fetch, int64_t key) const {
    return fetch.rows.get() + of.rows[static_cast<size_t>(key)] * fetch.dim();
  }

  std::vector<TableFetch> tables_;
  std::vector<OfFeature> of_features_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_FETCHED_ROWS_H_
