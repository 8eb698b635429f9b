// ChangedRows: which rows of a table have changed since some point in time, one bit each.
//
// Used in the leader's process only. Several threads may call Mark() at once; a thread that reads
// or adds has waited for the update that marks.
#ifndef TFHYBRID_CORE_STORE_CHANGED_ROWS_H_
#define TFHYBRID_CORE_STORE_CHANGED_ROWS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace tfhybrid {

class ChangedRows {
 public:
  // For a table with `rows` rows now; rows added later count as changed.
  explicit ChangedRows(int64_t rows)
      : words_(static_cast<size_t>((rows + kWordRows - 1) / kWordRows)), count_(words_.size()) {
    if (rows % kWordRows != 0) words_.back() = ~uint64_t{0} << (rows % kWordRows);
  }

  void Mark(int64_t row) {
    const auto word = static_cast<size_t>(row / kWordRows);
    if (word >= count_) return;
    const uint64_t bit = uint64_t{1} << (row % kWordRows);
    // Most rows that change do so often: only the first time is a write that threads contend for.
    if ((words_[word].load(std::memory_order_relaxed) & bit) == 0) {
      words_[word].fetch_or(bit, std::memory_order_relaxed);
    }
  }

  // A bit for each of the rows [64 * word, 64 * word + 64).
  uint64_t Word(int64_t word) const {
    const auto index = static_cast<size_t>(word);
    return index < count_ ? words_[index].load(std::memory_order_relaxed) : ~uint64_t{0};
  }

  // Marks what `other` has marked, too.
  void Add(const ChangedRows& other) {
    count_ = std::min(count_, other.count_);  // behind it all count as changed
    for (size_t word = 0; word < count_; ++word) {
      words_[word].fetch_or(other.words_[word].load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int64_t kWordRows = 64;

  std::vector<std::atomic<uint64_t>> words_;
  size_t count_;  // of the words in use
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_CHANGED_ROWS_H_
