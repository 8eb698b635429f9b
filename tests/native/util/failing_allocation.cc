#include "util/failing_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> left{0};
std::atomic<bool> spares_one{false};
thread_local bool is_spared = false;

// Not inlined: the compiler would take `free` for a mistake.
[[gnu::noinline]] void Release(void* memory) { std::free(memory); }

[[gnu::noinline]] void* Allocate(std::size_t bytes, std::size_t alignment = 0) {
  if (left.load(std::memory_order_relaxed) > 0 && !(spares_one && is_spared) &&
      left.fetch_sub(1) == 1) {
    throw std::bad_alloc();
  }
  void* const memory = alignment == 0
                           ? std::malloc(bytes == 0 ? 1 : bytes)
                           : std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
// std::stable_sort asks for its buffer by these, and does without.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Release(memory); }

namespace tfhybrid {

void FailAllocation(int64_t number, Allocating where) {
  is_spared = true;
  spares_one = where == Allocating::kOnOtherThreads;
  left = number;
}

bool AllocationFailed() { return left <= 0; }

}  // namespace tfhybrid
