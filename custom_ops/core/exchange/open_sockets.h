// The open sockets of this process, which a forked child must not keep.
//
// A connection ends with its last descriptor, so a child that kept them would hide the parent's
// death from its peers. In a child each of these descriptors leads to /dev/null. The number stays
// in use, so that no other file is closed or written in its place. Thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_
#define TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_

namespace tfhybrid {

// From now on forked children do not keep this socket.
void KeepFromForkedChildren(int socket);
// Closes a socket that was given to KeepFromForkedChildren().
void CloseSocket(int socket);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_
