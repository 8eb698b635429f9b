// The rows of an update's keys, those of the leader's lookup by what it has found.
#include <memory>
#include <vector>

#include "core/store/known_rows.h"
#include "core/update/table_update.h"

namespace tfhybrid {

void TableUpdate::FindRows(TableWriter* table, UpdateUnit* unit) {
  const Span<const int64_t> keys = unit->merged.keys();
  const std::shared_ptr<const KnownRows::Set> known = table->index().known_rows()->last();
  if (known == nullptr || known->numbers.moves != table->page().counters().moves) {
    return table->Find(keys, &unit->rows);
  }
  std::vector<int64_t>& rows = unit->rows.rows;
  rows.resize(static_cast<size_t>(keys.size()));
  std::vector<int64_t> positions, unknown;
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t row = known->Row(unit->merged.FirstRankPosition(i), keys[i]);
    rows[static_cast<size_t>(i)] = row;
    if (row != KeyIndex::kMissing) continue;
    positions.push_back(i);
    unknown.push_back(keys[i]);
  }
  RowSet found;
  table->Find(unknown, &found);
  for (size_t i = 0; i < unknown.size(); ++i) {
    rows[static_cast<size_t>(positions[i])] = found.rows[i];
  }
  unit->rows.missing.clear();
  for (const int64_t i : found.missing) {
    unit->rows.missing.push_back(positions[static_cast<size_t>(i)]);
  }
}

}  // namespace tfhybrid
