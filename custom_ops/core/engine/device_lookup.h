// DeviceLookup: a lookup that gathers rows from variables on a device.
//
// Finds the slot of each key in its table's variable. Reads each row as a lookup on the host does,
// and selects the rows whose bits differ from those on the device, to be copied there before the
// gather. So the device has the bits that the host would read, whatever has changed a row.
#ifndef TFHYBRID_CORE_ENGINE_DEVICE_LOOKUP_H_
#define TFHYBRID_CORE_ENGINE_DEVICE_LOOKUP_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/passes/device_rows.h"
#include "core/util/parallel.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class DeviceLookup {
 public:
  // The keys of a feature, and the index of its table.
  struct Feature {
    Span<const int64_t> keys;
    size_t table;
  };

  // `held`: as of DeviceRows::Plan(). `outside`: of training, as in FeatureRead.
  static Result<std::shared_ptr<DeviceLookup>> Plan(Engine* engine, const OpenTables& tables,
                                                    const std::vector<Feature>& features,
                                                    int64_t held, bool outside);
  // Fetches rows from other hosts. On the fetching thread.
  Status Fetch(const ParallelFor& parallel_for);
  // Reads all rows, and selects those to copy.
  Status Read(const ParallelFor& parallel_for);

  // Identifies this lookup: the next `held`, once the device has the rows.
  int64_t number() const { return number_; }
  const std::vector<int32_t>& slots(size_t feature) const;
  // The size of a table's variable if a new one is needed, else 0.
  int64_t size(size_t table) const { return tables_[table].requested.size; }
  int64_t changed(size_t table) const {
    return static_cast<int64_t>(tables_[table].changed.size());
  }
  // Writes the rows to copy, and the slot of each.
  void CopyChanged(size_t table, int32_t* slots, float* rows) const;

 private:
  struct TableLookup {
    std::shared_ptr<OpenTable> table;
    std::shared_ptr<DeviceRows> on_device;
    DeviceRows::RequestedRows requested;
    std::unique_ptr<float[]> rows;  // of requested.keys
    std::vector<int64_t> changed;   // numbers of rows

    int64_t dim() const { return table->reader->dim(); }
  };

  DeviceLookup(Engine* engine, bool outside);
  Status ReadTable(size_t table);

  Engine* const engine_;
  const int64_t number_;
  const bool outside_;
  std::vector<TableLookup> tables_;
  // For each feature: its table, and its number among that table's features.
  std::vector<std::pair<size_t, size_t>> features_;
  std::shared_ptr<const FetchedRows> fetched_;  // null where all rows are here
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_DEVICE_LOOKUP_H_
