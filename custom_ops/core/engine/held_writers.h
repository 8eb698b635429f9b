// HeldWriters: holds the locks of some tables' writers during its lifetime. On the leader.
#ifndef TFHYBRID_CORE_ENGINE_HELD_WRITERS_H_
#define TFHYBRID_CORE_ENGINE_HELD_WRITERS_H_

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/store/store.h"
#include "core/util/mutex.h"
#include "core/util/status.h"

namespace tfhybrid {

class HeldWriters {
 public:
  explicit HeldWriters(const OpenTables& tables) {
    // In a fixed order, so that two with common tables cannot deadlock; each one once.
    OpenTables in_order = tables;
    std::sort(in_order.begin(), in_order.end());
    in_order.erase(std::unique(in_order.begin(), in_order.end()), in_order.end());
    for (const auto& table : in_order) {
      locks_.emplace_back(table->writing);
      if (table->waiting != nullptr) locks_.emplace_back(table->waiting->writing);
    }
    for (const auto& table : tables) writers_.push_back(table->writer.get());
  }

  const std::vector<TableWriter*>& all() const { return writers_; }

  // Tells all who wait for the next update why it failed, if it failed.
  void Report(const Status& applied) const {
    if (applied.ok()) return;
    for (TableWriter* writer : writers_) writer->PublishFailure(applied);
  }

 private:
  std::vector<TableWriter*> writers_;
  std::vector<std::unique_lock<Mutex>> locks_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_HELD_WRITERS_H_
