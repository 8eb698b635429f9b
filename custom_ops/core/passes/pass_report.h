// The passes of a host, as seen by a process that is not one of its ranks.
#ifndef TFHYBRID_CORE_PASSES_PASS_REPORT_H_
#define TFHYBRID_CORE_PASSES_PASS_REPORT_H_

#include <cstdint>
#include <string>

#include "core/passes/pass_file.h"

namespace tfhybrid {

struct PassReport {
  int64_t standing = 0;  // passes that are open
  int64_t rows = 0;      // in them
  int64_t bytes = 0;     // of shared memory
  int64_t counts[kPassCounters] = {};
};

// Reports the passes of the store in a directory. A pass that ends meanwhile is left out.
PassReport ReportPasses(const std::string& directory);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_PASSES_PASS_REPORT_H_
