// DeviceTier: the passes of this rank whose rows lie on its device too, by table.
//
// Thread-safe.
#ifndef TFHYBRID_CORE_PASSES_DEVICE_TIER_H_
#define TFHYBRID_CORE_PASSES_DEVICE_TIER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/passes/device_rows.h"
#include "core/util/span.h"

namespace tfhybrid {

struct DeviceCounts {
  int64_t bytes = 0;   // of the variables on this rank's device
  int64_t copied = 0;  // rows that were copied into them
};

class DeviceTier {
 public:
  // What a pass wants of a table there.
  struct Keys {
    std::string table;
    int64_t dim;
    std::vector<int64_t> keys;  // distinct
  };

  // Rows of this table lie on the device from now on, where lookups ask for it.
  void Add(const std::string& table, int64_t dim);
  // Null where they do not.
  std::shared_ptr<DeviceRows> Of(const std::string& table) const;

  static Keys Wanted(const std::string& table, int64_t dim, Span<const int64_t> keys);
  // What variables that hold those take.
  static int64_t Bytes(const std::vector<Keys>& wanted);

  // Passes go by their numbers in RankPasses.
  void Announce(int64_t pass, std::vector<Keys> wanted);
  // Lookups find places for its keys from now on.
  void Begin(int64_t pass);
  void End(int64_t pass);
  void EndAll();
  DeviceCounts counts() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<DeviceRows>> tables_;  // guarded by mutex_
  std::map<int64_t, std::vector<Keys>> announced_;             // not begun; guarded by mutex_
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_DEVICE_TIER_H_
