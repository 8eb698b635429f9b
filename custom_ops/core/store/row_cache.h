// RowCache: the leader's access to the rows of a table that lies in files: a cache of them in
// shared memory, and the file behind it. See core/store/row_tier.h for what readers see.
//
// An update brings its rows into the cache, changes them there as if the table lay in memory, and
// leaves them there. A row is written back when its slot is wanted for another. Its copy in memory
// counts until the file has all of it: after a kill at any instant each row is whole in one of the
// two, and its address says in which.
//
// A record is a part of a page, which the kernel has to read before it can change the part. So the
// row that leaves the cache gets the record of a row that was read lately and is still cached, and
// that row gets the record of the row that leaves: a miss reads one page, not two.
//
// Not thread-safe; Record() is. One process.
#ifndef TFHYBRID_CORE_STORE_ROW_CACHE_H_
#define TFHYBRID_CORE_STORE_ROW_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/shm/mapped_file.h"
#include "core/store/recent_records.h"
#include "core/store/row_tier.h"
#include "core/store/segment.h"
#include "core/tier/row_file.h"
#include "core/util/parallel.h"
#include "core/util/status.h"

namespace tfhybrid {

// Returns where a row's address lies.
using AddressAt = std::function<uint64_t*(int64_t row)>;

// Which generation of a table's files.
struct TierGeneration {
  std::string table_name;
  std::string cache_path;
  std::string rows_path;
  uint64_t token;
  uint64_t number;
};

class RowCache {
 public:
  // Makes the files of a generation that holds no rows. On failure there are none.
  static Result<std::unique_ptr<RowCache>> Create(const TierGeneration& generation, int64_t slots,
                                                  int64_t record_floats);
  // Opens the files of a dead leader. REQUIRES: CheckSlots() follows.
  static Result<std::unique_ptr<RowCache>> Attach(const TierGeneration& generation,
                                                  int64_t record_floats);
  // Frees slots that were being filled; kDataLoss where an address names no slot of its row.
  Status CheckSlots(int64_t rows, const AddressAt& address_at);

  int64_t slots() const { return static_cast<int64_t>(segment()->slots); }
  const RowFile& file() const { return file_; }

  // Brings rows into the cache, and keeps them there until the next call. They will be changed.
  // Rows from `rows_in_table` on are new: nothing is read for them. Fails where the cache has no
  // room for all of them, or where the file cannot be read or written; rows are as they were then.
  // REQUIRES: the rows are distinct.
  Status Bring(const std::vector<int64_t>& rows, int64_t rows_in_table, const AddressAt& address_at,
               const ParallelFor& parallel_for);
  // Likewise rows of the table that will be changed later, beside those that the last Bring()
  // keeps: its update may have been staged and not committed. Brings none where all of these would
  // take more than half of the cache.
  Status BringAhead(const std::vector<int64_t>& rows, int64_t rows_in_table,
                    const AddressAt& address_at);
  // REQUIRES: the address is of a row that was brought.
  float* Record(uint64_t address) const { return images_ + SlotOf(address) * record_floats_; }
  // Frees the slot of a row that is removed; and gives the one of a row to its new number. Both may
  // be repeated. A row that lies in the file has no slot.
  void Release(int64_t row, uint64_t address);
  void Renumber(uint64_t address, int64_t to);

 private:
  // A slot that is wanted, the row that leaves it, and the cached row that this row exchanges
  // records with; kNone where there is no such row.
  struct Leaving {
    int64_t slot;
    int64_t row;
    int64_t exchanges_with;
  };

  RowCache(std::string table_name, MappedFile cache, RowFile file);
  CacheSegment* segment() const { return reinterpret_cast<CacheSegment*>(cache_.mutable_data()); }
  bool Holds(int64_t row, uint64_t address) const;
  Status FillSlots(const std::vector<int64_t>& missing, int64_t rows_in_table,
                   const AddressAt& address_at, const ParallelFor& parallel_for);
  std::vector<int64_t> ChooseSlots(size_t count);
  std::vector<Leaving> ChooseRecords(const std::vector<int64_t>& chosen, int64_t rows_in_table,
                                     const AddressAt& address_at);
  int64_t TakeRecentRow(int64_t record, int64_t rows_in_table, const AddressAt& address_at);
  Status EmptySlot(const Leaving& leaving, const AddressAt& address_at);
  Status FillSlot(int64_t number, int64_t row, int64_t rows_in_table, uint64_t* address);
  Status RunAll(size_t count, const ParallelFor& parallel_for,
                const std::function<Status(size_t)>& work) const;

  const std::string table_name_;
  const MappedFile cache_;
  const RowFile file_;
  const int64_t record_floats_;
  CacheSlot* const slots_;
  float* const images_;
  // Kept in this process only: which slots are wanted since the last Bring(), and how many; which
  // were wanted lately, where the search for slots stopped, which slots are emptied or let exchange
  // records, and which rows were read lately.
  std::vector<uint32_t> wanted_in_;
  std::vector<bool> wanted_lately_;
  uint32_t round_ = 1;
  size_t wanted_ = 0;
  size_t hand_ = 0;
  std::vector<bool> bound_;
  RecentRecords recent_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_ROW_CACHE_H_
