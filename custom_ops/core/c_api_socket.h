// A socket that the C interface was offered; closed unless an engine takes it over.
#ifndef TFHYBRID_CORE_C_API_SOCKET_H_
#define TFHYBRID_CORE_C_API_SOCKET_H_

#include <unistd.h>

namespace tfhybrid {

class OfferedSocket {
 public:
  explicit OfferedSocket(int socket) : socket_(socket) {}
  ~OfferedSocket() {
    if (socket_ >= 0) close(socket_);
  }
  OfferedSocket(const OfferedSocket&) = delete;
  OfferedSocket& operator=(const OfferedSocket&) = delete;
  int Take() {
    const int taken = socket_;
    socket_ = -1;
    return taken;
  }

 private:
  int socket_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_C_API_SOCKET_H_
