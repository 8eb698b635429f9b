// DeviceLookup: a lookup whose rows are taken from variables on a device: at which places they lie
// there, and which ones have to be copied to it before.
//
// Every row is read here, as a lookup on the host would, and copied where its bits are not those
// that the device has. So whatever has changed a row, the device has what the host would read.
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
  // A feature's keys, and the number of its table.
  struct Feature {
    Span<const int64_t> keys;
    size_t table;
  };

  // `held`: as of DeviceRows::Plan().
  static Result<std::shared_ptr<DeviceLookup>> Plan(Engine* engine, const OpenTables& tables,
                                                    const std::vector<Feature>& features,
                                                    int64_t held);
  // Brings what has to come from other hosts. On the fetching thread.
  Status Fetch(const ParallelFor& parallel_for);
  // Reads all rows, and finds those that are to be copied.
  Status Read(const ParallelFor& parallel_for);

  // By which the device says that it has what was copied.
  int64_t number() const { return number_; }
  const std::vector<int32_t>& places(size_t feature) const;
  // Rows of a table's variable, if it is to be made anew; else 0.
  int64_t size(size_t table) const { return parts_[table].wanted.size; }
  int64_t changed(size_t table) const { return static_cast<int64_t>(parts_[table].changed.size()); }
  // Writes them, and the place of each.
  void CopyChanged(size_t table, int32_t* places, float* rows) const;

 private:
  struct Part {
    std::shared_ptr<OpenTable> table;
    std::shared_ptr<DeviceRows> on_device;
    DeviceRows::Wanted wanted;
    std::unique_ptr<float[]> rows;  // of wanted.keys
    std::vector<int64_t> changed;   // numbers of rows

    int64_t dim() const { return table->reader->dim(); }
  };

  explicit DeviceLookup(Engine* engine);
  Status ReadPart(size_t table);

  Engine* const engine_;
  const int64_t number_;
  std::vector<Part> parts_;
  // Of each feature: its table, and which of that table's features it is.
  std::vector<std::pair<size_t, size_t>> features_;
  std::shared_ptr<const FetchedRows> fetched_;  // null where all rows are here
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_ENGINE_DEVICE_LOOKUP_H_
