// FileRows: the leader's access to the rows of a table that lie in files on a disk
// (core/store/row_tier.h): the files of their generation, and the cache. Of a table in memory it
// has nothing, and most calls do nothing.
//
// The files have one generation from the first chunk until the table is cleared or gets another
// optimizer: a record holds embedding and state, so its length is known when the optimizer is.
//
// Not thread-safe; Record() and Read() are. One process.
#ifndef TFHYBRID_CORE_STORE_FILE_ROWS_H_
#define TFHYBRID_CORE_STORE_FILE_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/compute/optimizer.h"
#include "core/shm/mapped_file.h"
#include "core/store/row_cache.h"
#include "core/store/row_tier.h"
#include "core/store/table_index.h"
#include "core/store/table_page.h"
#include "core/util/parallel.h"
#include "core/util/status.h"

namespace tfhybrid {

class FileRows {
 public:
  // `tier` is not mapped where the table lies in memory. `address_at` returns the address of any
  // row that there is room for. The page is borrowed.
  FileRows(const TablePage* page, MappedFile tier, AddressAt address_at);

  // Whether the table's rows lie in files.
  bool used() const { return tier_.mapped(); }
  // Index of such a table, or of one in memory.
  IndexKind index_kind() const { return used() ? IndexKind::kCompact : IndexKind::kKeys; }
  // Rows that the cache in use holds; 0 where there is none.
  int64_t slots() const { return cache_ == nullptr ? 0 : cache_->slots(); }
  // Rows that a cache has room for, of so many numbers.
  int64_t CacheRows(int64_t record_floats) const;
  // Ok unless rows lie there, which have no room for the state of another optimizer.
  Status CheckNoRows() const;
  // Ok if the table can have that optimizer, which it gets now.
  Status CheckOptimizer(const OptimizerConfig& config) const;

  // Makes the files of a generation, unless there are some. `capacity`: rows that there are chunks
  // for.
  Status Make(int64_t record_floats, int64_t capacity);
  // Makes room in the file for the records [first, end). Thread-safe beside everything but Make()
  // and Drop().
  Status Reserve(int64_t first, int64_t end) const;
  // Removes the files. REQUIRES: the table has no rows.
  void Drop();
  // Opens the files of a dead leader, or removes them where the table has no rows.
  Status Attach(int64_t record_floats);
  // Checks what rows and records a dead leader left, and ends an exchange of records that it had
  // begun. REQUIRES: Attach(); no removal is under way.
  Status CheckRecords(int64_t capacity);

  // Before rows are changed, new ones among them: brings them to memory, and keeps them there until
  // the next call. Fails with all rows as they are. REQUIRES: room is reserved; the rows are
  // distinct.
  Status Bring(const std::vector<int64_t>& rows, const ParallelFor& parallel_for);
  // Brings rows for an update that is to come, beside those of the last Bring(), as far as there is
  // room. On failure rows are as they were, and the update that wants them says why. REQUIRES: the
  // cache is in use.
  void BringAhead(std::vector<int64_t> rows);
  // REQUIRES: the address is of a row that was brought.
  float* Record(uint64_t address) const { return cache_->Record(address); }
  // Copies embedding and state of any row.
  Status Read(int64_t row, float* record) const;
  // Reads rows from any thread; null where there are none.
  const std::shared_ptr<const RowTier>& reader() const { return row_tier_; }

  // Notes the addresses of a row that is removed and of the last one, for Move().
  void BeginMove(int64_t row, int64_t last) const;
  // The two rows exchange addresses. Whatever of it a dead leader has done is done once more, from
  // what the tier says that they had.
  void Move(int64_t row, int64_t last);

 private:
  TierSegment* tier() const { return reinterpret_cast<TierSegment*>(tier_.mutable_data()); }
  std::string Directory() const;
  TierGeneration GenerationOf(uint64_t number) const;
  // The files themselves; on failure some may be there.
  Status MakeGeneration(const TierGeneration& generation, int64_t record_floats, int64_t capacity);
  Status DuplicateRecord(int64_t row, int64_t capacity) const;
  Status CheckExchanged(const std::vector<int64_t>& rows, int64_t capacity) const;

  const TablePage* const page_;
  const MappedFile tier_;  // not mapped where rows lie in memory
  const AddressAt address_at_;
  std::unique_ptr<RowCache> cache_;          // null where rows lie in memory, or there are none
  std::shared_ptr<const RowTier> row_tier_;  // likewise
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_FILE_ROWS_H_
