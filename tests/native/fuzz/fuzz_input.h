// FuzzInput: the bytes of a fuzzer's input, taken from the front. What is not there reads as zero.
#ifndef TFHYBRID_TESTS_NATIVE_FUZZ_FUZZ_INPUT_H_
#define TFHYBRID_TESTS_NATIVE_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tfhybrid {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }

  template <typename Number>
  Number Take() {
    Number number = 0;
    const std::string bytes = TakeBytes(sizeof(number));
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }

  std::string TakeBytes(size_t max_bytes) {
    const size_t count = std::min(max_bytes, size_);
    const std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }

  std::string TakeRest() { return TakeBytes(size_); }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_FUZZ_FUZZ_INPUT_H_
