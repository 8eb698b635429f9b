#include "core/exchange/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/exchange/open_sockets.h"
#include "core/util/counters.h"
#include "core/util/system_message.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

constexpr timeval kSlice = {1, 0};  // of a wait, between two looks at who is alive
constexpr size_t kMaxPieces = 512;

void SetUp(int socket) {
  const int on = 1;
  // A socket with a timeout of Python's does not block: each wait would be over at once.
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK);
  // A pair of sockets within a process has no TCP; there it is not needed.
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kSlice, sizeof(kSlice));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kSlice, sizeof(kSlice));
}

// Drops what was sent of the pieces.
void Advance(size_t sent, std::vector<iovec>* pieces, size_t* first) {
  for (; sent > 0; ++*first) {
    iovec& piece = (*pieces)[*first];
    if (sent < piece.iov_len) {
      piece.iov_base = static_cast<char*>(piece.iov_base) + sent;
      piece.iov_len -= sent;
      return;
    }
    sent -= piece.iov_len;
  }
}

bool IsSliceOver(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connection::Connection(int socket, std::string peer, std::function<Status()> check_alive)
    : socket_(socket), peer_(std::move(peer)), check_alive_(std::move(check_alive)) {
  SetUp(socket_);
  KeepFromForkedChildren(socket_);
}

Connection::~Connection() { CloseSocket(socket_); }

void Connection::Shut() { shutdown(socket_, SHUT_RDWR); }

Status Connection::Lost(const std::string& why) const {
  return Status::Error(StatusCode::kPeerDied, "The connection to ", peer_, " is lost: ", why);
}

Status Connection::Send(FrameKind kind, const std::vector<Span<const int64_t>>& pieces) {
  FrameHeader header = {kFrameMagic, static_cast<uint32_t>(kind), 0};
  std::vector<iovec> left = {{&header, sizeof(header)}};
  for (const Span<const int64_t>& piece : pieces) {
    header.words += piece.size();
    if (piece.empty()) continue;
    left.push_back({const_cast<int64_t*>(piece.data()),  // sendmsg() reads it only
                    static_cast<size_t>(piece.size()) * sizeof(int64_t)});
  }
  if (header.words > kMaxFrameWords) {
    return Status::Error(StatusCode::kInvalidArgument, "A frame has at most ", kMaxFrameWords,
                         " words. Received: ", header.words);
  }
  const MutexLock guard(sending_);
  for (size_t first = 0; first < left.size();) {
    msghdr message = {};
    message.msg_iov = &left[first];
    message.msg_iovlen = std::min(left.size() - first, kMaxPieces);
    const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent >= 0) {
      AddTo(Counter::kSentBytes, sent);
      Advance(static_cast<size_t>(sent), &left, &first);
    } else if (IsSliceOver(errno)) {
      TFHYBRID_RETURN_IF_ERROR(check_alive_());
    } else {
      return Lost(SystemMessage(errno));
    }
  }
  return Status::Ok();
}

Status Connection::ReceiveBytes(void* bytes, int64_t size) {
  for (int64_t received = 0; received < size;) {
    const ssize_t came = recv(socket_, static_cast<char*>(bytes) + received,
                              static_cast<size_t>(size - received), 0);
    if (came > 0) {
      received += came;
      AddTo(Counter::kReceivedBytes, came);
    } else if (came == 0) {
      return Lost("its process has ended, or closed it");
    } else if (IsSliceOver(errno)) {
      TFHYBRID_RETURN_IF_ERROR(check_alive_());
    } else {
      return Lost(SystemMessage(errno));
    }
  }
  return Status::Ok();
}

Result<FrameHeader> Connection::ReceiveHeader() {
  FrameHeader header;
  TFHYBRID_RETURN_IF_ERROR(ReceiveBytes(&header, sizeof(header)));
  if (header.magic != kFrameMagic || header.words < 0 || header.words > kMaxFrameWords) {
    return Lost("what it sent is no frame of the row service");
  }
  return header;
}

Result<Frame> Connection::Receive() {
  TFHYBRID_ASSIGN_OR_RETURN(const FrameHeader header, ReceiveHeader());
  Frame frame = {static_cast<FrameKind>(header.kind), WordBuffer::OfSize(header.words)};
  TFHYBRID_RETURN_IF_ERROR(
      ReceiveBytes(frame.payload.data.get(), header.words * int64_t{sizeof(int64_t)}));
  return frame;
}

std::vector<int64_t> FailureWords(const Status& why) {
  WordWriter out;
  out.Put(static_cast<int64_t>(why.code()), why.message());
  return out.Take();
}

Status FailureFrom(Span<const int64_t> words) {
  WordReader in(words);
  int64_t code = 0;
  std::string message;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&code, &message));
  const bool known = code > 0 && code <= static_cast<int64_t>(StatusCode::kSystem);
  return Status::Error(known ? static_cast<StatusCode>(code) : StatusCode::kFailedPrecondition,
                       message);
}

}  // namespace tfhybrid
