// How this process ends when other processes of the job have ended, or end it.
#ifndef TFHYBRID_CORE_PROCESS_END_H_
#define TFHYBRID_CORE_PROCESS_END_H_

#include <chrono>

namespace tfhybrid {

// Ends this process with status 1 after that time, whatever it does meanwhile, unless it has ended
// by itself.
void ExitAfter(std::chrono::milliseconds time);

// From now on a first SIGTERM ends this process so much later, a second one at once; 0 gives
// SIGTERM back. Nothing changes where the program ignores SIGTERM or has a handler. A forked child
// ends at once, as if there were no handler. Not thread-safe.
void LingerAfterSigterm(std::chrono::milliseconds time);

// Whether this process has had a SIGTERM that it lingers after. Thread-safe.
bool IsLingering();

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PROCESS_END_H_
