// Fuzzing of files: an input is a list of changes to files that were valid.
//
//   input   := { options: uint8 } change*      options: 1 = segments are sealed again afterwards,
//                                              so that more than their checksum is tried
//   change  := { file: uint8, at: uint16 } and
//              file < 128:  { count: uint8, bytes: uint8[count] }   overwrites from `at` on
//              else         nothing more                            makes it `at` bytes long
//
// `file` counts the names in their order, and starts anew behind the last.
#ifndef TFHYBRID_TESTS_NATIVE_FUZZ_PATCHES_H_
#define TFHYBRID_TESTS_NATIVE_FUZZ_PATCHES_H_

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "fuzz/fuzz_input.h"
#include "store/segment_files.h"

namespace tfhybrid {

constexpr uint8_t kReseal = 1;

inline Files Patched(Files files, FuzzInput input) {
  constexpr uint8_t kResize = 128;
  const auto options = input.Take<uint8_t>();
  while (!input.empty()) {
    const auto file = input.Take<uint8_t>();
    const auto at = input.Take<uint16_t>();
    std::string& content = std::next(files.begin(), file % kResize % files.size())->second;
    if (file >= kResize) {
      content.resize(at);
      continue;
    }
    const std::string bytes = input.TakeBytes(input.Take<uint8_t>());
    if (at >= content.size()) continue;
    const size_t count = std::min(bytes.size(), content.size() - at);
    content.replace(at, count, bytes, 0, count);
  }
  if ((options & kReseal) != 0) {
    for (auto& [name, content] : files) Reseal(geteuid(), &content);
  }
  return files;
}

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_FUZZ_PATCHES_H_
