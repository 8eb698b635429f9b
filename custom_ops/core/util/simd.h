// TFHYBRID_SIMD: marks a function whose loops are worth compiling once per vector width.
//
// The loader picks the widest version that the processor has, so one binary runs on any x86-64 and
// nothing is built with -march=native. Use it on elementwise loops only: each version then does the
// same exactly rounded operations, and all give the same bits, because the build turns contraction
// to fused multiply-add off. Sanitizers cannot run the loader's choice, so they get one version.
#ifndef TFHYBRID_CORE_UTIL_SIMD_H_
#define TFHYBRID_CORE_UTIL_SIMD_H_

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define TFHYBRID_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TFHYBRID_SANITIZED
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(TFHYBRID_SANITIZED)
#define TFHYBRID_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TFHYBRID_SIMD
#endif

#endif  // TFHYBRID_CORE_UTIL_SIMD_H_
