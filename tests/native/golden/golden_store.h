// The golden store: a small store of a fixed content, made by today's code and compared with the
// bytes in store/, which an earlier commit made.
#ifndef TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_STORE_H_
#define TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_STORE_H_

#include <cstdint>
#include <string>

#include "core/store/store.h"
#include "core/update/update_journal.h"
#include "store/segment_files.h"

namespace tfhybrid {

constexpr int64_t kGoldenDim = 4;
constexpr char kGoldenTable[] = "item/1";
constexpr char kGoldenUpdate[] = "update";
constexpr float kGoldenRate = 0.25f;

struct GoldenRow {
  int64_t key;
  float embedding[kGoldenDim];
  float accumulator[kGoldenDim];
};

StoreConfig GoldenStoreConfig(const std::string& shm_directory);
UpdateSettings GoldenSettings();

// Makes the store in `shm_directory` and returns its files, as they are kept: owned by nobody (uid
// 0), and without the zeros at their ends.
Files MakeGoldenStore(const std::string& shm_directory);

// Files as they are kept, as they were in the store of this user.
Files Restored(Files kept);

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_GOLDEN_GOLDEN_STORE_H_
