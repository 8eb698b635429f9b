#include "core/store/store_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/shm/liveness.h"
#include "core/store/row_tier.h"

namespace tfhybrid {

namespace fs = std::filesystem;

namespace {

std::string Prefix(const std::string& shm_directory) {
  return (fs::path(shm_directory) / ("tfhybrid-" + std::to_string(geteuid()))).string();
}

}  // namespace

std::string StoreDirectory(const std::string& shm_directory, const std::string& job) {
  return Prefix(shm_directory) + "-" + job;
}

std::string HostMutexPath(const std::string& shm_directory) {
  return Prefix(shm_directory) + ".lock";
}

std::string RankPath(const std::string& directory, int local_rank) {
  return directory + "/rank-" + std::to_string(local_rank);
}

std::vector<std::string> StoredJobs(const std::string& shm_directory) {
  const std::string prefix = StoreDirectory(shm_directory, "");
  std::vector<std::string> jobs;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(shm_directory, ignored)) {
    const std::string path = entry.path().string();
    struct stat info;
    const bool ours = path.rfind(prefix, 0) == 0 && lstat(path.c_str(), &info) == 0 &&
                      S_ISDIR(info.st_mode) && info.st_uid == geteuid();
    if (ours) jobs.push_back(path.substr(prefix.size()));
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

// The descriptions of the living processes of a store, "; " between them; empty if all are dead.
std::string LivingProcesses(const std::string& directory) {
  std::string living;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  // In doubt they live: the stores of the dead are removed. By number: a category of errors that
  // another library brings along is not equal to ours.
  if (error && error.value() != ENOENT) return error.message();
  for (const auto& entry : entries) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().rfind("rank-", 0) != 0 || !IsAlive(path)) continue;
    living += (living.empty() ? "" : "; ") + DescribeHolder(path);
  }
  return living;
}

int64_t BytesIn(const std::string& directory) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    bytes += static_cast<int64_t>(entry.file_size(ignored));
  }
  return bytes;
}

void RemoveStoreFiles(const std::string& directory, std::error_code* error) {
  RemoveTiers(directory);  // first: the store knows where they are
  fs::remove_all(directory, *error);
}

}  // namespace tfhybrid
