// A child that is run instruction by instruction, for tests of what a kill at any instant leaves.
#ifndef TFHYBRID_TESTS_NATIVE_SHM_STEPPED_PROCESS_H_
#define TFHYBRID_TESTS_NATIVE_SHM_STEPPED_PROCESS_H_

#include <sys/types.h>

#include <functional>

namespace tfhybrid {

class SteppedProcess {
 public:
  // The child runs `prepare` at full speed and stops before `body`. One thread only.
  SteppedProcess(const std::function<void()>& prepare, const std::function<void()>& body);
  ~SteppedProcess();
  SteppedProcess(const SteppedProcess&) = delete;
  SteppedProcess& operator=(const SteppedProcess&) = delete;

  // False where processes may not be traced.
  bool possible() const { return possible_; }
  // Runs the next instruction of `body`; false when it has ended.
  bool Step();

 private:
  pid_t pid_ = -1;
  bool possible_ = false;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_SHM_STEPPED_PROCESS_H_
