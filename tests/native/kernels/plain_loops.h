// Comes before everything else in a build of the kernels: what TFHYBRID_SIMD marks is compiled
// once, for the processor that the compiler's flags name.
#include "core/util/simd.h"

#undef TFHYBRID_SIMD
#define TFHYBRID_SIMD
