// Directories: what they hold, how they are removed, and the names of their files.
//
// By POSIX alone. std::filesystem needs a libstdc++ that the oldest system of a wheel does not
// have. Thread-safe.
#ifndef TFHYBRID_CORE_SHM_DIRECTORY_H_
#define TFHYBRID_CORE_SHM_DIRECTORY_H_

#include <string>
#include <vector>

#include "core/util/status.h"

namespace tfhybrid {

// Returns the names of a directory's entries, without "." and "..", in no order. kNotFound where
// there is no directory.
Result<std::vector<std::string>> NamesIn(const std::string& directory);
// The same; none where the directory cannot be read.
std::vector<std::string> NamesOrNone(const std::string& directory);

// Removes a file or an empty directory. It is no error if there is none.
Status RemoveFile(const std::string& path);
// Removes a file, or a directory with all that it holds, up to the first error. Follows no symbolic
// link. It is no error if there is none.
Status RemoveTree(const std::string& path);

// Returns the part of a path behind its last '/'.
std::string FileName(const std::string& path);
// Returns the part of a name before its last '.', or the name if it has none.
std::string Stem(const std::string& name);
// Returns whether a name has that suffix behind a stem: "a.table" has ".table", ".table" has not.
bool HasSuffix(const std::string& name, const std::string& suffix);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_SHM_DIRECTORY_H_
