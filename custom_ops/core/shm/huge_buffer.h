// HugeBuffer: anonymous memory of one process, in huge pages where there are any.
//
// For tens of megabytes that are filled once and given back: to fault small pages in would take
// longer than to fill them. Neither copied nor moved.
#ifndef TFHYBRID_CORE_SHM_HUGE_BUFFER_H_
#define TFHYBRID_CORE_SHM_HUGE_BUFFER_H_

#include <cstddef>
#include <cstdint>

namespace tfhybrid {

constexpr size_t kHugePage = size_t{2} << 20;

class HugeBuffer {
 public:
  // Throws std::bad_alloc.
  explicit HugeBuffer(int64_t bytes);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  // Aligned to a huge page. Zeros at first.
  char* data() const { return data_; }

 private:
  char* mapping_;
  int64_t mapped_bytes_;
  char* data_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_HUGE_BUFFER_H_
