// What the rows of golden/store are.
#ifndef TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_ROWS_H_
#define TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_ROWS_H_

#include <cstdint>

#include "golden/golden_store.h"

namespace tfhybrid {

// In order of creation.
inline constexpr GoldenRow kGoldenRows[] = {
    {0, {-1, -0x1.cp-1f, -0x1.8p-1f, -0x1.4p-1f}, {0, 0x1p-4f, 0x1p-3f, 0x1.8p-3f}},
    {-1,
     {-0x1.4afb1p-2f, -0x1.177d0cp-2f, -0x1p-2f, -0x1.b504fp-3f},
     {0x1p-1f, 0x1.8p-2f, 0x1.8p-2f, 0x1p-1f}},
    {INT64_MIN, {0, 0x1p-3f, 0x1p-2f, 0x1.8p-2f}, {0x1p-1f, 0x1.2p-1f, 0x1.4p-1f, 0x1.6p-1f}},
    {INT64_MAX,
     {0x1.8p-2f, 0x1.dc4308p-2f, 0x1.2285a4p-1f, 0x1.fabafep-1f},
     {1, 0x1.6p+0f, 0x1.ep+0f, 0x1.3p+0f}},
    {1, {1, 0x1.2p+0f, 0x1.4p+0f, 0x1.6p+0f}, {1, 0x1.1p+0f, 0x1.2p+0f, 0x1.3p+0f}},
    {2, {0x1.8p+0f, 0x1.ap+0f, 0x1.cp+0f, 0x1.ep+0f}, {0x1.4p+0f, 0x1.5p+0f, 0x1.6p+0f, 0x1.7p+0f}},
    {3,
     {0x1.066666p+1f, 0x1.1p+1f, 0x1.19d772p+1f, 0x1.248158p+1f},
     {0x1.9p+0f, 0x1.9p+0f, 0x1.bp+0f, 0x1.fp+0f}},
    {1000,
     {0x1.4p+1f, 0x1.5p+1f, 0x1.6p+1f, 0x1.7p+1f},
     {0x1.cp+0f, 0x1.dp+0f, 0x1.ep+0f, 0x1.fp+0f}},
    {-1000,
     {0x1.7101ep+1f, 0x1.7db6dcp+1f, 0x1.aa61d6p+1f, 0x1.b55556p+1f},
     {0x1.48p+1f, 0x1.88p+1f, 0x1.3p+1f, 0x1.2p+1f}},
    {INT64_MIN + 1,
     {0x1.cp+1f, 0x1.dp+1f, 0x1.ep+1f, 0x1.fp+1f},
     {0x1.2p+1f, 0x1.28p+1f, 0x1.3p+1f, 0x1.38p+1f}},
    {INT64_MAX - 1,
     {0x1.718116p-3f, -0x1.caa354p-1f, 0x1.41ac4cp-1f, 0x1.cd7f44p-4f},
     {0x1.99999ap-4f, 0x1.4cccccp-3f, 0x1.666666p-2f, 0x1.533334p-1f}},
    {-2,
     {-0x1.32afa4p+0f, 0x1.2fe54cp-1f, -0x1.370196p-1f, -0x1.d194acp-8f},
     {0x1.19999ap+0f, 0x1.666666p-2f, 0x1.4cccccp-3f, 0x1.99999ap-4f}},
    {4,
     {-0x1.180d6p-7f, -0x1.c3f288p-1f, 0x1.f3a84p-8f, 0x1.deb62p-2f},
     {0x1.4cccccp-3f, 0x1.666666p-2f, 0x1.533334p-1f, 0x1.19999ap+0f}},
    {5,
     {-0x1.f8c3p-3f, 0x1.b2d3dap-1f, 0x1.628bdp-2f, 0x1.b7dce4p-2f},
     {0x1.666666p-2f, 0x1.4cccccp-3f, 0x1.99999ap-4f, 0x1.4cccccp-3f}},
    {6,
     {-0x1.1f653p+0f, 0x1.a67d5ep-3f, -0x1.267fcp-1f, 0x1.2921e4p-3f},
     {0x1.666666p-2f, 0x1.533334p-1f, 0x1.19999ap+0f, 0x1.666666p-2f}},
    {7,
     {0x1.356b0cp+0f, -0x1.18ba36p-2f, -0x1.d32f3cp-2f, -0x1.3b845ep-1f},
     {0x1.4cccccp-3f, 0x1.99999ap-4f, 0x1.4cccccp-3f, 0x1.666666p-2f}},
    {8,
     {0x1.f9c478p-5f, 0x1.23c044p-4f, 0x1.3eb2d8p-2f, 0x1.a87d54p-2f},
     {0x1.533334p-1f, 0x1.19999ap+0f, 0x1.666666p-2f, 0x1.4cccccp-3f}},
    {9,
     {0x1.d9cd5ap-5f, 0x1.8dc078p-2f, -0x1.2c2cfp-1f, 0x1.8b73f8p-5f},
     {0x1.99999ap-4f, 0x1.4cccccp-3f, 0x1.666666p-2f, 0x1.533334p-1f}},
    {10,
     {-0x1.a504dp-2f, 0x1.08769cp-1f, -0x1.545deap-1f, 0x1.f2cb7cp-4f},
     {0x1.19999ap+0f, 0x1.666666p-2f, 0x1.4cccccp-3f, 0x1.99999ap-4f}},
    {11,
     {-0x1.bf976ap-4f, 0x1.38efap-6f, 0x1.3178bcp-2f, 0x1.2f6816p-3f},
     {0x1.4cccccp-3f, 0x1.666666p-2f, 0x1.533334p-1f, 0x1.19999ap+0f}},
};
inline constexpr float kGoldenInitialRow[kGoldenDim] = {  // of key 123456789
    0x1.3a23e6p-2f, 0x1.04404ap+0f, 0x1.a456aep-7f, -0x1.c85742p-3f};
inline constexpr uint64_t kGoldenDigest = 0x367be8a3bec5ce03;

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_ROWS_H_
