// Values end to end in 64-bit words, as processes send them to each other. A value without a fixed
// length begins with its number of bytes.
#ifndef TFHYBRID_CORE_UTIL_WORDS_H_
#define TFHYBRID_CORE_UTIL_WORDS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

class WordWriter {
 public:
  void Put(int64_t value) { words_.push_back(value); }
  void PutBytes(const void* bytes, int64_t size) {
    Put(size);
    const size_t at = words_.size();
    words_.resize(at + static_cast<size_t>((size + 7) / 8), 0);
    if (size > 0) std::memcpy(&words_[at], bytes, static_cast<size_t>(size));
  }
  void Put(const std::string& text) { PutBytes(text.data(), static_cast<int64_t>(text.size())); }
  template <typename T>
  void Put(const std::vector<T>& values) {
    PutBytes(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  template <typename First, typename Second, typename... Rest>
  void Put(const First& first, const Second& second, const Rest&... rest) {
    Put(first);
    Put(second, rest...);
  }
  std::vector<int64_t> Take() { return std::move(words_); }

 private:
  std::vector<int64_t> words_;
};

// Reads such words. Distrusts every length.
class WordReader {
 public:
  explicit WordReader(Span<const int64_t> words) : words_(words) {}

  bool done() const { return words_.empty(); }
  // The words that were not read yet.
  Span<const int64_t> rest() const { return words_; }
  Status Get(int64_t* value) {
    if (done()) return CutShort();
    *value = words_[0];
    words_ = words_.subspan(1, words_.size() - 1);
    return Status::Ok();
  }
  // The next words themselves.
  Status Get(int64_t count, Span<const int64_t>* words) {
    if (count < 0 || count > words_.size()) return CutShort();
    *words = words_.subspan(0, count);
    words_ = words_.subspan(count, words_.size() - count);
    return Status::Ok();
  }
  // Into a string or a vector of numbers.
  template <typename Container>
  Status Get(Container* values) {
    using Value = typename Container::value_type;
    int64_t size = 0;
    TFHYBRID_RETURN_IF_ERROR(Get(&size));
    if (size < 0 || size % int64_t{sizeof(Value)} != 0 || size > words_.size() * 8) {
      return CutShort();
    }
    values->resize(static_cast<size_t>(size) / sizeof(Value));
    if (size > 0)
      std::memcpy(static_cast<void*>(values->data()), words_.data(), static_cast<size_t>(size));
    const int64_t taken = (size + 7) / 8;
    words_ = words_.subspan(taken, words_.size() - taken);
    return Status::Ok();
  }
  // The next values, one after another.
  template <typename First, typename Second, typename... Rest>
  Status Get(First* first, Second* second, Rest*... rest) {
    TFHYBRID_RETURN_IF_ERROR(Get(first));
    return Get(second, rest...);
  }

 private:
  static Status CutShort() {
    return Status::Error(StatusCode::kDataLoss, "What another process sent is cut short");
  }

  Span<const int64_t> words_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_WORDS_H_
