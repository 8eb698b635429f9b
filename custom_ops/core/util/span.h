// Span<T>: a pointer and a length, owned by somebody else (C++17 has no std::span).
#ifndef TFHYBRID_CORE_UTIL_SPAN_H_
#define TFHYBRID_CORE_UTIL_SPAN_H_

#include <cstdint>
#include <type_traits>
#include <utility>

namespace tfhybrid {

template <typename T>
class Span {
 public:
  Span() = default;
  Span(T* data, int64_t size) : data_(data), size_(size) {}

  // From any container with data() and size(): std::vector, std::string, another Span.
  template <typename Container,
            typename = std::enable_if_t<std::is_convertible_v<
                std::remove_pointer_t<decltype(std::declval<Container&>().data())> (*)[], T (*)[]>>>
  Span(Container& container)  // NOLINT: implicit by design
      : data_(container.data()), size_(static_cast<int64_t>(container.size())) {}

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](int64_t i) const { return data_[i]; }

  // REQUIRES: offset + count <= size().
  Span subspan(int64_t offset, int64_t count) const { return Span(data_ + offset, count); }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_SPAN_H_
