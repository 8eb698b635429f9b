// SystemMessage: the words of an error number of the operating system. On any thread, unlike
// std::strerror.
#ifndef TFHYBRID_CORE_UTIL_SYSTEM_MESSAGE_H_
#define TFHYBRID_CORE_UTIL_SYSTEM_MESSAGE_H_

#include <cstring>
#include <string>

namespace tfhybrid {

inline std::string SystemMessage(int error) {
  char buffer[256];
  // GNU's returns the text, which may lie elsewhere.
  return strerror_r(error, buffer, sizeof(buffer));
}

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UTIL_SYSTEM_MESSAGE_H_
