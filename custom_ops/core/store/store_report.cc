#include "core/store/store_report.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/shm/directory.h"
#include "core/shm/liveness.h"
#include "core/store/segment.h"
#include "core/store/store_files.h"

namespace tfhybrid {
namespace {

constexpr char kRankPrefix[] = "rank-";

// The number in the name of a rank's file, or -1.
int RankOf(const std::string& name) {
  const std::string digits = name.substr(sizeof(kRankPrefix) - 1);
  const bool number = !digits.empty() && digits.size() < 7 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoi(digits) : -1;
}

// A table of a store, which may be gone when it is looked at.
TableReport ReportTable(const std::string& directory, uint64_t token,
                        const std::string& file_name) {
  TableReport report;
  report.name = Stem(file_name);  // as in its file's name, until it is known better
  const Result<MappedFile> file =
      OpenSegment(directory + "/" + file_name, {SegmentKind::kTable, token, 0},
                  static_cast<int64_t>(sizeof(TableSegment)));
  if (!file.ok()) {
    report.problem = file.status().message();
    return report;
  }
  const auto* segment = reinterpret_cast<const TableSegment*>(file.value().data());
  report.name.assign(segment->shape.name, strnlen(segment->shape.name, kMaxTableName));
  const Result<std::unique_ptr<TableReader>> reader =
      TableReader::Open(directory, token, report.name);
  if (!reader.ok()) {
    report.problem = reader.status().message();
    return report;
  }
  report.dim = reader.value()->dim();
  report.optimizer = reader.value()->optimizer().kind;
  report.stats = reader.value()->Stats();
  return report;
}

StoreReport ReportStore(const std::string& directory, const std::string& job) {
  StoreReport report;
  report.job = job;
  report.directory = directory;
  report.bytes = BytesIn(directory);
  uint64_t token = 0;
  const Result<MappedFile> store = MappedFile::OpenReadOnly(directory + "/store");
  if (!store.ok()) {
    report.problem = store.status().message();
  } else if (store.value().size() >= static_cast<int64_t>(sizeof(SegmentHeader))) {
    token = reinterpret_cast<const SegmentHeader*>(store.value().data())->token;
  }
  for (const std::string& name : NamesOrNone(directory)) {
    if (name.rfind(kRankPrefix, 0) == 0 && RankOf(name) >= 0) {
      const std::string path = directory + "/" + name;
      report.ranks.push_back({RankOf(name), {StateOfHolder(path), DescribeHolder(path)}});
    } else if (HasSuffix(name, ".table") && report.problem.empty()) {
      report.tables.push_back(ReportTable(directory, token, name));
    }
  }
  std::sort(report.ranks.begin(), report.ranks.end(),
            [](const auto& a, const auto& b) { return a.local_rank < b.local_rank; });
  std::sort(report.tables.begin(), report.tables.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return report;
}

}  // namespace

std::vector<StoreReport> ReportStores(const std::string& shm_directory) {
  std::vector<StoreReport> reports;
  for (const std::string& job : StoredJobs(shm_directory)) {
    reports.push_back(ReportStore(StoreDirectory(shm_directory, job), job));
  }
  return reports;
}

Result<int64_t> RemoveStore(const std::string& shm_directory, const std::string& job) {
  const std::string directory = StoreDirectory(shm_directory, job);
  const std::vector<std::string> all = StoredJobs(shm_directory);
  // Nothing becomes a process of it meanwhile.
  const HostMutex mutex(HostMutexPath(shm_directory));
  TFHYBRID_RETURN_IF_ERROR(mutex.status());
  if (std::find(all.begin(), all.end(), job) == all.end()) {
    return Status::Error(StatusCode::kNotFound, "There is no store of a job '", job, "' in ",
                         shm_directory);
  }
  const std::string living = LivingProcesses(directory);
  if (!living.empty()) {
    return Status::Error(StatusCode::kAlreadyExists, "The job '", job, "' is running: ", living,
                         ". End it first");
  }
  const int64_t bytes = BytesIn(directory);
  TFHYBRID_RETURN_IF_ERROR(RemoveStoreFiles(directory));
  return bytes;
}

}  // namespace tfhybrid
