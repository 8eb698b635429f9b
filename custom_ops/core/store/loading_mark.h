// LoadingMark: set while rows are overwritten without a journal. A new leader refuses a marked
// table.
#ifndef TFHYBRID_CORE_STORE_LOADING_MARK_H_
#define TFHYBRID_CORE_STORE_LOADING_MARK_H_

#include <cstdint>

#include "core/store/layout.h"
#include "core/store/row_sequence.h"

namespace tfhybrid {

class LoadingMark {
 public:
  explicit LoadingMark(TableSegment* table) : table_(table) {
    Set(1);
    BeginRowChange(&table->counters);
  }
  ~LoadingMark() {
    NoteMoves(&table_->counters);
    EndRowChange(&table_->counters);
    if (!left_) Set(0);
  }
  // Rows stay old and new: the mark outlives this.
  void Leave() { left_ = true; }
  LoadingMark(const LoadingMark&) = delete;
  LoadingMark& operator=(const LoadingMark&) = delete;

 private:
  void Set(uint64_t loading) {
    __atomic_store_n(&table_->counters.loading, loading, __ATOMIC_SEQ_CST);
  }
  TableSegment* const table_;
  bool left_ = false;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_LOADING_MARK_H_
