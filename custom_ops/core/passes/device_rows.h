// DeviceRows: the places of a table's rows in a variable on this rank's device.
//
// Each key of the open passes keeps its place until the last pass that has it is closed. Other keys
// of a lookup get free places, for that lookup alone. DeviceRows also keeps the bits that were last
// sent to each place, so that a lookup sends only the rows whose bits differ.
//
// Thread-safe. But a lookup must have finished on the device before the next one calls Plan().
#ifndef TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_
#define TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class DeviceRows {
 public:
  // The rows of a lookup.
  struct RequestedRows {
    std::vector<std::vector<int32_t>> places;  // of each feature's keys
    std::vector<int64_t> keys;                 // to be read, each once
    std::vector<int32_t> at;                   // the place of each
    int64_t size = 0;                          // rows of the variable, if it is to be made anew
    int64_t numbering = 0;
  };

  explicit DeviceRows(int64_t dim) : dim_(dim) { index_.Reset(0); }

  // The size of a variable for that many rows: a power of two.
  static int64_t SizeFor(int64_t rows);

  // Gives the distinct keys of a pass places until Close().
  void Open(int64_t pass, std::vector<int64_t> keys);
  void Close(int64_t pass);
  void CloseAll();

  // Finds places for the keys of a lookup's features. `held`: the number of the last Copy() that
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
  void Renumber();
  // Starts a new variable with at least that many places.
  void Resize(int64_t places);
  void ForgetCopies();
  // Returns places of distinct keys, given their numbers in the index; other keys get free places.
  std::vector<int32_t> PlacesOf(const std::vector<int64_t>& numbers) const;
  void RequestPasses(const std::function<bool(int64_t key)>& is_at_hand,
                     RequestedRows* requested) const;
  float* CopyAt(int32_t place) { return copies_.data() + int64_t{place} * dim_; }

  const int64_t dim_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<int64_t, std::vector<int64_t>> open_;  // keys by pass
  bool passes_changed_ = false;
  UniqueKeys index_;                // of the keys of all open passes
  std::vector<int32_t> places_;     // by their numbers there
  std::vector<int32_t> free_;       // places that no pass uses
  std::vector<float> copies_;       // the row that was last sent to each place
  std::vector<uint8_t> is_kept_;    // by place: a pass uses it
  std::vector<uint8_t> is_copied_;  // by place: the device has the row in copies_
  bool makes_anew_ = false;         // the next Copy() starts a new variable
  bool fills_ = false;              // the next Copy() sends the rows of passes
  UniqueKeys distinct_;             // scratch
  int64_t held_ = -1;               // the number of the last Copy()
  int64_t numbering_ = 0;           // of places
  int64_t copied_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_
