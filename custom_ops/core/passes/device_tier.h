// DeviceTier: the tables whose rows lie on this rank's device, and the passes announced for them.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_PASSES_DEVICE_TIER_H_
#define TFHYBRID_CORE_PASSES_DEVICE_TIER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/passes/device_rows.h"
#include "core/util/mutex.h"
#include "core/util/span.h"

namespace tfhybrid {

struct DeviceCounts {
  int64_t bytes = 0;   // of the variables on this rank's device
  int64_t copied = 0;  // rows that were copied into them
};

class DeviceTier {
 public:
  // The keys of a table in a pass.
  struct Keys {
    std::string table;
    int64_t dim;
    std::vector<int64_t> keys;  // distinct
  };

  // Lets lookups of a table use the device.
  void Add(const std::string& table, int64_t dim);
  // Null if Add() was not called for the table.
  std::shared_ptr<DeviceRows> Of(const std::string& table) const;

  static Keys Request(const std::string& table, int64_t dim, Span<const int64_t> keys);
  // The bytes of variables for those keys.
  static int64_t Bytes(const std::vector<Keys>& requested);

  // `pass`: the number that RankPasses gave it.
  void Announce(int64_t pass, std::vector<Keys> requested);
  // Gives its keys slots. Called for each batch; only the first call has an effect.
  void Begin(int64_t pass);
  void End(int64_t pass);
  void EndAll();
  DeviceCounts counts() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<DeviceRows>> tables_ TFHYBRID_GUARDED_BY(mutex_);
  std::map<int64_t, std::vector<Keys>> announced_ TFHYBRID_GUARDED_BY(mutex_);  // not begun
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_DEVICE_TIER_H_
