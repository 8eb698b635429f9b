#include "core/shm/huge_buffer.h"

#include <sys/mman.h>

#include <new>

namespace tfhybrid {

HugeBuffer::HugeBuffer(int64_t bytes) : mapped_bytes_(bytes + static_cast<int64_t>(kHugePage)) {
  void* const mapping = mmap(nullptr, static_cast<size_t>(mapped_bytes_), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char*>(mapping);
  const size_t past = reinterpret_cast<uintptr_t>(mapping_) % kHugePage;
  data_ = mapping_ + (kHugePage - past) % kHugePage;
  madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a kernel without them refuses
}

HugeBuffer::~HugeBuffer() { munmap(mapping_, static_cast<size_t>(mapped_bytes_)); }

}  // namespace tfhybrid
