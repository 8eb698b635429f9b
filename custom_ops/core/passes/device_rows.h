// DeviceRows: which rows of a table lie at which places of a variable on this rank's device.
//
// Keys of the open passes have places for as long as one of them is open. Those that a lookup wants
// beside them get what places are left, until the next lookup. The bits that were copied to each
// place are remembered here: a lookup copies what has others now, and nothing else.
//
// Thread-safe; but Plan() and Copy() of a lookup are followed by what it does on the device before
// the next one plans.
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
  // What a lookup wants.
  struct Wanted {
    std::vector<std::vector<int32_t>> places;  // of each feature's keys
    std::vector<int64_t> keys;                 // to be read, each once
    std::vector<int32_t> at;                   // the place of each
    int64_t size = 0;                          // rows of the variable, if it is to be made anew
    int64_t numbering = 0;
  };

  explicit DeviceRows(int64_t dim) : dim_(dim) { index_.Reset(0); }

  // Rows of a variable that holds so many: a power of two.
  static int64_t SizeFor(int64_t rows);

  // The keys of a pass, each once, have places until it is closed.
  void Open(int64_t pass, std::vector<int64_t> keys);
  void Close(int64_t pass);
  void CloseAll();

  // Finds places for the keys of a lookup's features. `held` is what the device says that it has:
  // the number of the last Copy() that has arrived there. Also wants what passes that were opened
  // since want, as far as it `is_at_hand`.
  Result<Wanted> Plan(const std::vector<Span<const int64_t>>& features, int64_t held,
                      const std::function<bool(int64_t key)>& is_at_hand);
  // Notes the rows of wanted.keys, and returns the numbers of those that are to be copied to their
  // places; `number`: of this copy, which the device will say.
  Result<std::vector<int64_t>> Copy(const Wanted& wanted, const float* rows, int64_t number);

  // Of the variable.
  int64_t bytes() const;
  // Rows that were to be copied, since it was made.
  int64_t copied() const;

 private:
  void Renumber();
  // Makes the variable anew, with as many places as are wanted.
  void Resize(int64_t places);
  void ForgetCopies();
  std::vector<int32_t> PlacesOf(Span<const int64_t> distinct) const;
  void WantPasses(const std::function<bool(int64_t key)>& is_at_hand, Wanted* wanted) const;
  float* CopyAt(int32_t place) { return copies_.data() + int64_t{place} * dim_; }

  const int64_t dim_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<int64_t, std::vector<int64_t>> open_;  // keys by pass
  bool passes_changed_ = false;
  UniqueKeys index_;                // of the keys of all open passes
  std::vector<int32_t> places_;     // by their numbers there
  std::vector<int32_t> free_;       // places of no pass
  std::vector<float> copies_;       // what lies at each place
  std::vector<uint8_t> is_kept_;    // by place: whether a pass has it
  std::vector<uint8_t> is_copied_;  // whether it has been copied, as copies_ says
  bool makes_anew_ = false;
  bool fills_ = false;
  UniqueKeys distinct_;    // scratch
  int64_t held_ = -1;      // the number of the last Copy()
  int64_t numbering_ = 0;  // of places
  int64_t copied_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_DEVICE_ROWS_H_
