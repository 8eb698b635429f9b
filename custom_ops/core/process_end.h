// How this process ends when other processes of the job have ended, or end it.
#ifndef TFHYBRID_CORE_PROCESS_END_H_
#define TFHYBRID_CORE_PROCESS_END_H_

#include <chrono>

namespace tfhybrid {

// Ends this process with status 1 after that time, whatever it does meanwhile, unless it has ended
// by itself.
void ExitAfter(std::chrono::milliseconds time);

// From now on a first SIGTERM, and std::terminate(), which Gloo calls when it loses a rank, end
// this process so much later, a second SIGTERM at once; 0 takes that back. SIGTERM stays as it is
// where the program ignores it or has a handler. A forked child ends at once, as if there were no
// handler. Not thread-safe.
void LingerAfterSigterm(std::chrono::milliseconds time);

// Whether this process has had a SIGTERM that it lingers after. Thread-safe.
bool IsLingering();

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PROCESS_END_H_
