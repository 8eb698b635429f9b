// How this process ends after other processes of the job have ended, or when they end it.
#ifndef TFHYBRID_CORE_PROCESS_END_H_
#define TFHYBRID_CORE_PROCESS_END_H_

#include <chrono>

namespace tfhybrid {

// Ends this process with status 1 after this time, whatever it does meanwhile, unless it has
// already ended.
void ExitAfter(std::chrono::milliseconds time);

// From now on a first SIGTERM, or std::terminate(), which Gloo calls when it loses a rank, ends
// this process with this delay; a second SIGTERM ends it at once. 0 restores the default. SIGTERM
// is not changed if the program ignores it or has a handler. A forked child ends at once, as if
// there were no handler. Not thread-safe.
void LingerAfterSigterm(std::chrono::milliseconds time);

// Whether this process has received a SIGTERM and lingers. Thread-safe.
bool IsLingering();

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PROCESS_END_H_
