// KnownRows: where the rows of a lookup's keys lie, for the update with the gradients of the same
// keys: what the leader's lookup has found, its update need not find again.
//
// A hint, which is checked: a row is known for a key at its position among the keys of the lookup,
// and while no row of the table has moved. Thread-safe; whoever got a set may keep it.
#ifndef TFHYBRID_CORE_STORE_KNOWN_ROWS_H_
#define TFHYBRID_CORE_STORE_KNOWN_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/store/key_index.h"
#include "core/util/mutex.h"
#include "core/util/span.h"

namespace tfhybrid {

// Rows by number: they keep nothing mapped. Found ahead of a lookup while updates run, or by it.
struct RowNumbers {
  uint64_t moves = 0;         // that there had been (TableCounters)
  std::vector<int64_t> rows;  // of each key; KeyIndex::kMissing: it had none
};

class KnownRows {
 public:
  struct Set {
    std::shared_ptr<const void> owner;  // of the keys
    Span<const int64_t> keys;
    RowNumbers numbers;

    // The row of the key at that position; KeyIndex::kMissing where this does not know it.
    int64_t Row(int64_t position, int64_t key) const {
      if (position < 0 || position >= keys.size() || keys[position] != key) {
        return KeyIndex::kMissing;
      }
      return numbers.rows[static_cast<size_t>(position)];
    }
  };

  // Instead of what it had.
  void Keep(Set set) {
    auto kept = std::make_shared<const Set>(std::move(set));
    const MutexLock guard(mutex_);
    last_.swap(kept);
  }
  // Null where there is none.
  std::shared_ptr<const Set> last() const {
    const MutexLock guard(mutex_);
    return last_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const Set> last_ TFHYBRID_GUARDED_BY(mutex_);
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_KNOWN_ROWS_H_
