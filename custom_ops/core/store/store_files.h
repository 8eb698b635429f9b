// The files of a host's stores, and the living processes of each.
#ifndef TFHYBRID_CORE_STORE_STORE_FILES_H_
#define TFHYBRID_CORE_STORE_STORE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/util/status.h"

namespace tfhybrid {

// Returns the directory of a store of this user.
std::string StoreDirectory(const std::string& shm_directory, const std::string& job);
// The file of the HostMutex under which they are created, attached and removed.
std::string HostMutexPath(const std::string& shm_directory);
std::string RankPath(const std::string& directory, int local_rank);

// The jobs that have a store, sorted.
std::vector<std::string> StoredJobs(const std::string& shm_directory);

// The descriptions of the living processes of a store, "; " between them; empty if all are dead.
std::string LivingProcesses(const std::string& directory);
int64_t BytesIn(const std::string& directory);
// With the files of its tables that lie on disks. REQUIRES: its processes are dead.
Status RemoveStoreFiles(const std::string& directory);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_STORE_FILES_H_
