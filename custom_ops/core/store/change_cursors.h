// ChangeCursors: what has changed in a table since each of several readers last looked.
//
// A reader has a cursor of its own, which has a name: a checkpoint and a publisher do not take each
// other's marks. What a reader has taken can be given back, if it could not make use of it.
//
// Used in the leader's process only. Several threads may call Mark() at once; everything else is
// for a thread that has waited for the update that marks.
#ifndef TFHYBRID_CORE_STORE_CHANGE_CURSORS_H_
#define TFHYBRID_CORE_STORE_CHANGE_CURSORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/store/changed_rows.h"

namespace tfhybrid {

// The rows that have changed, and the keys whose rows were removed.
struct Changes {
  std::unique_ptr<ChangedRows> rows;
  std::vector<int64_t> removed;
};

class ChangeCursors {
 public:
  // Begins a cursor, or begins it anew, for a table that has `rows` rows.
  void Track(const std::string& name, int64_t rows) { Take(name, rows, true); }

  // What has changed since the cursor began; null where there is no such cursor.
  const Changes* Find(const std::string& name) const {
    for (const Cursor& cursor : cursors_) {
      if (cursor.name == name) return &cursor.changes;
    }
    return nullptr;
  }

  // Returns what has changed and begins the cursor anew. Without a cursor of that name it returns
  // nothing, and begins one only if `create`.
  Changes Take(const std::string& name, int64_t rows, bool create = false) {
    Changes fresh = {std::make_unique<ChangedRows>(rows), {}};
    for (Cursor& cursor : cursors_) {
      if (cursor.name == name) return std::exchange(cursor.changes, std::move(fresh));
    }
    if (create) cursors_.push_back({name, std::move(fresh)});
    return {};
  }

  // Adds what was taken from a cursor to it again.
  void Return(const std::string& name, Changes taken) {
    for (Cursor& cursor : cursors_) {
      if (cursor.name != name || taken.rows == nullptr) continue;
      cursor.changes.rows->Add(*taken.rows);
      // The order says nothing: a removed key may have a row again.
      std::vector<int64_t>& removed = cursor.changes.removed;
      removed.insert(removed.end(), taken.removed.begin(), taken.removed.end());
    }
  }

  // Ends all cursors: what has changed is not known any longer.
  void Forget() { cursors_.clear(); }

  void Mark(int64_t row) const {
    for (const Cursor& cursor : cursors_) cursor.changes.rows->Mark(row);
  }
  void MarkRemoved(int64_t key) {
    for (Cursor& cursor : cursors_) cursor.changes.removed.push_back(key);
  }

 private:
  struct Cursor {
    std::string name;
    Changes changes;
  };

  std::vector<Cursor> cursors_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_CHANGE_CURSORS_H_
