// Waiting for a 64-bit counter in shared memory to reach a value, without spinning: the only caller
// of futex.
//
// The counter grows while anybody waits. The waiter may have it mapped read-only. The futex watches
// the low 32 bits, which change with every increment, so no wake-up is lost unless 2^32 increments
// happen between two instructions.
#ifndef TFHYBRID_CORE_SHM_WAIT_WORD_H_
#define TFHYBRID_CORE_SHM_WAIT_WORD_H_

#include <cstdint>

namespace tfhybrid {

// Release store, pairs with the acquire load of LoadWord(): whoever sees `value` sees all that was
// written before it.
void PublishWord(uint64_t* word, uint64_t value);

// Adds 1, for a counter that several processes add to.
void AddToWord(uint64_t* word);

// Acquire load.
uint64_t LoadWord(const uint64_t* word);

// How long a process sleeps before it looks whether the one that it waits for still lives.
inline constexpr int kWaitSliceMs = 200;

// Waits until the word is at least `value` or about `timeout_ms` have passed; says whether it is.
bool WaitWord(const uint64_t* word, uint64_t value, int timeout_ms);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_WAIT_WORD_H_
