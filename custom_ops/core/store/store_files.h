// Where the stores of a host lie, and who lives in them.
#ifndef TFHYBRID_CORE_STORE_STORE_FILES_H_
#define TFHYBRID_CORE_STORE_STORE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tfhybrid {

// What all paths of this user begin with; a store's directory is this, '-' and the job's name.
std::string StorePrefix(const std::string& shm_directory);
std::string RankPath(const std::string& directory, int local_rank);

// The directories of this user's stores, sorted.
std::vector<std::string> StoreDirectories(const std::string& shm_directory);

// The descriptions of the living processes of a store, "; " between them; empty if all are dead.
std::string LivingProcesses(const std::string& directory);
int64_t BytesIn(const std::string& directory);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_STORE_STORE_FILES_H_
