// planted address | undefined | thread: makes the error that this sanitizer is for.
#include <cstring>
#include <limits>
#include <memory>
#include <thread>

namespace {

// Read anew each time, so that no compiler sees the error before it happens.
volatile int one = 1;

int ReadBehindTheEnd() {
  const auto values = std::make_unique<int[]>(1);
  return values[static_cast<size_t>(one)];
}

int Overflow() { return std::numeric_limits<int>::max() + one; }

int Race() {
  int value = 0;
  std::thread other([&] { value += one; });
  value += one;
  other.join();
  return value;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  if (std::strcmp(arguments[1], "address") == 0) return ReadBehindTheEnd();
  if (std::strcmp(arguments[1], "undefined") == 0) return Overflow();
  if (std::strcmp(arguments[1], "thread") == 0) return Race();
  return 2;
}
