#include "core/store/store_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/shm/directory.h"
#include "core/shm/liveness.h"
#include "core/store/row_tier.h"

namespace tfhybrid {

namespace {

std::string Prefix(const std::string& shm_directory) {
  const bool ends = shm_directory.empty() || shm_directory.back() == '/';
  return shm_directory + (ends ? "" : "/") + "tfhybrid-" + std::to_string(geteuid());
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
  const std::string prefix = FileName(StoreDirectory(shm_directory, ""));
  std::vector<std::string> jobs;
  for (const std::string& name : NamesOrNone(shm_directory)) {
    struct stat info;
    const bool ours = name.rfind(prefix, 0) == 0 &&
                      lstat((shm_directory + "/" + name).c_str(), &info) == 0 &&
                      S_ISDIR(info.st_mode) && info.st_uid == geteuid();
    if (ours) jobs.push_back(name.substr(prefix.size()));
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

// The descriptions of the living processes of a store, "; " between them; empty if all are dead.
std::string LivingProcesses(const std::string& directory) {
  std::string living;
  const Result<std::vector<std::string>> names = NamesIn(directory);
  if (names.status().code() == StatusCode::kNotFound) return living;
  // In doubt they live: the stores of the dead are removed.
  if (!names.ok()) return names.status().message();
  for (const std::string& name : names.value()) {
    const std::string path = directory + "/" + name;
    if (name.rfind("rank-", 0) != 0 || !IsAlive(path)) continue;
    living += (living.empty() ? "" : "; ") + DescribeHolder(path);
  }
  return living;
}

int64_t BytesIn(const std::string& directory) {
  int64_t bytes = 0;
  for (const std::string& name : NamesOrNone(directory)) {
    struct stat info;
    const bool is_file =
        stat((directory + "/" + name).c_str(), &info) == 0 && S_ISREG(info.st_mode);
    bytes += is_file ? info.st_size : 0;
  }
  return bytes;
}

Status RemoveStoreFiles(const std::string& directory) {
  RemoveTiers(directory);  // first: the store knows where they are
  return RemoveTree(directory);
}

}  // namespace tfhybrid
