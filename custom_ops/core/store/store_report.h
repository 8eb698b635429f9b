// Reports on the stores of a host, for processes outside their jobs: read-only, without becoming
// one of a store's processes.
#ifndef TFHYBRID_CORE_STORE_STORE_REPORT_H_
#define TFHYBRID_CORE_STORE_STORE_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/store/store.h"
#include "core/store/table_reader.h"
#include "core/util/status.h"

namespace tfhybrid {

struct TableReport {
  std::string name;
  std::string problem;  // why the rest is not known, or nothing
  int64_t dim = 0;
  OptimizerKind optimizer = OptimizerKind::kNone;
  TableStats stats = {};
};

struct RankReport {
  int local_rank = 0;
  RankState state = {};
};

struct StoreReport {
  std::string job;
  std::string directory;
  std::string problem;  // why the rest is not known, or nothing
  int64_t bytes = 0;    // of all files
  std::vector<RankReport> ranks;
  std::vector<TableReport> tables;
};

// The stores of this user, of running and of dead jobs, by name. A store may change while it is
// read.
std::vector<StoreReport> ReportStores(const std::string& shm_directory);

// Removes the store of a job; returns its bytes. kAlreadyExists while a process of the job lives,
// kNotFound where there is none.
Result<int64_t> RemoveStore(const std::string& shm_directory, const std::string& job);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_STORE_REPORT_H_
