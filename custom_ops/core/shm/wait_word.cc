#include "core/shm/wait_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace tfhybrid {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the futex watches the low half of the word, which must come first");

void PublishWord(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void AddToWord(uint64_t* word) {
  __atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint64_t LoadWord(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

bool WaitWord(const uint64_t* word, uint64_t value, int timeout_ms) {
  uint64_t seen = LoadWord(word);
  if (seen >= value) return true;
  const timespec timeout = {timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, static_cast<uint32_t>(seen), &timeout, nullptr, 0);
  return LoadWord(word) >= value;
}

}  // namespace tfhybrid
