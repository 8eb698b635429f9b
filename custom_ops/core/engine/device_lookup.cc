#include "core/engine/device_lookup.h"

#include <atomic>

#include "core/util/copy_floats.h"
#include "core/util/mutex.h"

namespace tfhybrid {
namespace {

constexpr int64_t kRowCostNs = 100;

// Unique in the process, because a variable may outlive its engine.
int64_t NextNumber() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

}  // namespace

DeviceLookup::DeviceLookup(Engine* engine, bool outside)
    : engine_(engine), number_(NextNumber()), outside_(outside) {}

Result<std::shared_ptr<DeviceLookup>> DeviceLookup::Plan(Engine* engine, const OpenTables& tables,
                                                         const std::vector<Feature>& features,
                                                         int64_t held, bool outside) {
  const std::shared_ptr<DeviceLookup> lookup(new DeviceLookup(engine, outside));
  std::vector<std::vector<Span<const int64_t>>> keys(tables.size());
  for (const Feature& feature : features) {
    lookup->features_.emplace_back(feature.table, keys[feature.table].size());
    keys[feature.table].push_back(feature.keys);
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const std::string name = tables[t]->reader->name();
    TableLookup of_table;
    of_table.table = tables[t];
    of_table.on_device = engine->passes().device().Of(name);
    if (of_table.on_device == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition, "Table '", name,
                           "' was opened without fast_tier='device'. Received: a lookup there");
    }
    TFHYBRID_ASSIGN_OR_RETURN(
        of_table.requested,
        of_table.on_device->Plan(keys[t], held, engine->passes().IsAtHand(*tables[t])));
    const auto floats = static_cast<int64_t>(of_table.requested.keys.size()) * of_table.dim();
    of_table.rows.reset(new float[static_cast<size_t>(floats)]);
    lookup->tables_.push_back(std::move(of_table));
  }
  return lookup;
}

Status DeviceLookup::Fetch(const ParallelFor& parallel_for) {
  std::vector<FeatureRead> reads;
  reads.reserve(tables_.size());
  for (const TableLookup& lookup : tables_) {
    reads.push_back({lookup.table, engine_->tables().AllocationOf(lookup.table->reader->name()),
                     lookup.requested.keys, false, outside_});
  }
  TFHYBRID_ASSIGN_OR_RETURN(fetched_, engine_->owners().Fetch(reads, parallel_for));
  return Status::Ok();
}

Status DeviceLookup::Read(const ParallelFor& parallel_for) {
  int64_t rows = 0;
  for (const TableLookup& lookup : tables_)
    rows += static_cast<int64_t>(lookup.requested.keys.size());
  const auto tables = static_cast<int64_t>(tables_.size());
  Mutex mutex;
  Status failure;  // guarded by mutex
  parallel_for(tables, kRowCostNs * (rows / tables + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Status read = ReadTable(static_cast<size_t>(t));
      const MutexLock guard(mutex);
      if (failure.ok()) failure = read;
    }
  });
  return failure;
}

Status DeviceLookup::ReadTable(size_t table) {
  TableLookup& lookup = tables_[table];
  const Span<const int64_t> keys = lookup.requested.keys;
  const RowCursor<float> out(lookup.rows.get(), RowLayout::Array(lookup.dim()), 0);
  if (fetched_ != nullptr && fetched_->Has(table)) {
    fetched_->Lookup(table, 0, keys.size(), out);
  } else {
    TFHYBRID_RETURN_IF_ERROR(
        lookup.table->reader->Lookup(keys, out, lookup.table->Unseen(outside_)));
  }
  TFHYBRID_ASSIGN_OR_RETURN(lookup.changed,
                            lookup.on_device->Copy(lookup.requested, lookup.rows.get(), number_));
  return Status::Ok();
}

const std::vector<int32_t>& DeviceLookup::slots(size_t feature) const {
  const auto& [table, number] = features_[feature];
  return tables_[table].requested.slots[number];
}

void DeviceLookup::CopyChanged(size_t table, int32_t* slots, float* rows) const {
  const TableLookup& lookup = tables_[table];
  const int64_t dim = lookup.dim();
  for (const int64_t row : lookup.changed) {
    *slots++ = lookup.requested.at[static_cast<size_t>(row)];
    CopyFloats(lookup.rows.get() + row * dim, dim, rows);
    rows += dim;
  }
}

}  // namespace tfhybrid
