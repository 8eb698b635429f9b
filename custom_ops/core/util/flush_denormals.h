// FlushDenormals: puts a thread into the floating-point mode of TensorFlow's threads.
//
// An update must give the same bits on any thread that applies or finishes it: denormal results and
// arguments count as zero. It lasts from construction to destruction, for the calling thread.
#ifndef TFHYBRID_CORE_UTIL_FLUSH_DENORMALS_H_
#define TFHYBRID_CORE_UTIL_FLUSH_DENORMALS_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tfhybrid {

class FlushDenormals {
 public:
  FlushDenormals() : before_(Mode()) { SetMode(before_ | kFlush); }
  ~FlushDenormals() { SetMode(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040;  // FTZ and DAZ of MXCSR
  static uint64_t Mode() { return _mm_getcsr(); }
  static void SetMode(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ of FPCR
  static uint64_t Mode() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void SetMode(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t Mode() { return 0; }
  static void SetMode(uint64_t) {}
#endif

  const uint64_t before_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_FLUSH_DENORMALS_H_
