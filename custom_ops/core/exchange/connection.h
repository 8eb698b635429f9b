// Connection: frames over a connected socket, the data path of the row service.
//
//     FrameHeader, then `words` words of 64 bits
//
// Access is checked before (tfhybrid/job/row_service.py): a peer is trusted to belong to the job,
// but not to work correctly. Every length is checked, and a frame of another protocol ends the
// connection.
//
// A forked child has no connection: its descriptors lead nowhere (core/exchange/open_sockets.h).
// Any thread may send; frames are sent whole. One thread receives. Any thread may call Shut().
#ifndef TFHYBRID_CORE_EXCHANGE_CONNECTION_H_
#define TFHYBRID_CORE_EXCHANGE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

enum class FrameKind : uint32_t {
  kRead = 1,     // asks for rows of keys, at a version (core/exchange/row_frames.h)
  kScan = 2,     // asks for rows as they lie
  kRows = 3,     // answers both
  kFailure = 4,  // answers with why not: a StatusCode and a text
  kUpdate = 5,   // these are of updates (core/exchange/update_inbox.h)
  kStaged = 6,
  kCommit = 7,
  kAnnounce = 8,  // these are of passes (core/exchange/pass_frames.h)
  kRelease = 9,
  kFresh = 10,
  kReadHandles = 11,  // as kRead, of key handles (core/placement/key_handle.h)
  kSent = 12,         // rows of a batch (core/exchange/batch_frames.h)
  kSomeRows = 13,     // the next rows of an answer that is not known to be one yet
  kReadMarked = 14,   // as kRead and kReadHandles; the answer says which keys have a row
  kReadMarkedHandles = 15,
};

struct FrameHeader {
  uint32_t magic;
  uint32_t kind;
  int64_t words;
};
static_assert(sizeof(FrameHeader) == 16);

inline constexpr uint32_t kFrameMagic = 0x31466854;  // "ThF1"
// More than any step needs: the limit of what a broken peer can make us allocate.
inline constexpr int64_t kMaxFrameWords = int64_t{1} << 31;

// Words that are not set to zero before they are received.
struct WordBuffer {
  std::unique_ptr<int64_t[]> data;
  int64_t size = 0;

  static WordBuffer OfSize(int64_t words) {
    return {std::unique_ptr<int64_t[]>(new int64_t[static_cast<size_t>(words)]), words};
  }
  Span<const int64_t> words() const { return {data.get(), size}; }
};

struct Frame {
  FrameKind kind;
  WordBuffer payload;
};

class Connection {
 public:
  // Owns `socket`, a connected stream socket, from then on. `peer` is for messages: "rank 4 on host
  // b". A wait checks `check_alive` from time to time, and ends with its error.
  Connection(int socket, std::string peer, std::function<Status()> check_alive);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::string& peer() const { return peer_; }

  // Sends a frame that consists of these pieces, one after the other.
  Status Send(FrameKind kind, const std::vector<Span<const int64_t>>& pieces);
  // kPeerDied if the other end has closed it.
  Result<FrameHeader> ReceiveHeader();
  Status ReceiveBytes(void* bytes, int64_t size);
  // Both.
  Result<Frame> Receive();
  // Ends all current and later sends and receives, here and at the other end.
  void Shut();

 private:
  Status Lost(const std::string& why) const;

  const int socket_;
  const std::string peer_;
  const std::function<Status()> check_alive_;
  Mutex sending_;
};

// Converts a failure to the payload of a frame, and back.
std::vector<int64_t> FailureWords(const Status& why);
Status FailureFrom(Span<const int64_t> words);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_CONNECTION_H_
