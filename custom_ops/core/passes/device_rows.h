// DeviceRows: the slots of a table's rows in a variable on this rank's device.
//
// Each key of the open passes keeps its slot until the last pass that has it is closed. Other keys
// of a lookup get free slots, for that lookup alone. DeviceRows also keeps the bits that were last
// sent to each slot, so that a lookup sends only the rows whose bits differ.
//
// Thread-safe. But a lookup must have finished on the device before the next one calls Plan().
#ifndef TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_
#define TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class DeviceRows {
 public:
  // The rows of a lookup.
  struct RequestedRows {
    std::vector<std::vector<int32_t>> slots;  // of each feature's keys
    std::vector<int64_t> keys;                // to be read, each once
    std::vector<int32_t> at;                  // the slot of each
    int64_t size = 0;                         // rows of the variable, if it is to be made anew
    int64_t numbering = 0;
  };

  explicit DeviceRows(int64_t dim) : dim_(dim) { index_.Reset(0); }

  // The size of a variable for that many rows: a power of two.
  static int64_t SizeFor(int64_t rows);

  // Gives the distinct keys of a pass slots until Close().
  void Open(int64_t pass, std::vector<int64_t> keys);
  void Close(int64_t pass);
  void CloseAll();

  // Finds slots for the keys of a lookup's features. `held`: the number of the last Copy() that
  // arrived on the device. The first call after Open() also adds those keys of the pass for which
  // `is_at_hand` is true.
  Result<RequestedRows> Plan(const std::vector<Span<const int64_t>>& features, int64_t held,
                             const std::function<bool(int64_t key)>& is_at_hand);
  // Takes the rows of requested.keys, and returns the indices of those that must be sent to the
  // device. `number` identifies this copy: it is `held` once the device has the rows.
  Result<std::vector<int64_t>> Copy(const RequestedRows& requested, const float* rows,
                                    int64_t number);

  // The size of the variable in bytes.
  int64_t bytes() const;
  // Rows sent to the device so far.
  int64_t copied() const;

 private:
  void Renumber() TFHYBRID_REQUIRES(mutex_);
  // Starts a new variable with at least that many slots.
  void Resize(int64_t slots) TFHYBRID_REQUIRES(mutex_);
  void ForgetCopies() TFHYBRID_REQUIRES(mutex_);
  // Returns slots of distinct keys, given their numbers in the index; other keys get free slots.
  std::vector<int32_t> SlotsOf(const std::vector<int64_t>& numbers) const TFHYBRID_REQUIRES(mutex_);
  void RequestPasses(const std::function<bool(int64_t key)>& is_at_hand,
                     RequestedRows* requested) const TFHYBRID_REQUIRES(mutex_);
  float* CopyAt(int32_t slot) TFHYBRID_REQUIRES(mutex_) {
    return copies_.data() + int64_t{slot} * dim_;
  }

  const int64_t dim_;
  mutable Mutex mutex_;
  std::map<int64_t, std::vector<int64_t>> open_ TFHYBRID_GUARDED_BY(mutex_);  // keys by pass
  bool passes_changed_ TFHYBRID_GUARDED_BY(mutex_) = false;
  UniqueKeys index_ TFHYBRID_GUARDED_BY(mutex_);            // of the keys of all open passes
  std::vector<int32_t> slots_ TFHYBRID_GUARDED_BY(mutex_);  // by their numbers there
  std::vector<int32_t> free_ TFHYBRID_GUARDED_BY(mutex_);   // slots that no pass uses
  // The row that was last sent to each slot.
  std::vector<float> copies_ TFHYBRID_GUARDED_BY(mutex_);
  std::vector<uint8_t> is_kept_ TFHYBRID_GUARDED_BY(mutex_);  // by slot: a pass uses it
  // By slot: the device has the row in copies_.
  std::vector<uint8_t> is_copied_ TFHYBRID_GUARDED_BY(mutex_);
  bool makes_anew_ TFHYBRID_GUARDED_BY(mutex_) = false;  // the next Copy() starts a new variable
  bool fills_ TFHYBRID_GUARDED_BY(mutex_) = false;       // the next Copy() sends the rows of passes
  UniqueKeys distinct_ TFHYBRID_GUARDED_BY(mutex_);      // scratch
  int64_t held_ TFHYBRID_GUARDED_BY(mutex_) = -1;        // the number of the last Copy()
  int64_t numbering_ TFHYBRID_GUARDED_BY(mutex_) = 0;    // of slots
  int64_t copied_ TFHYBRID_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_
