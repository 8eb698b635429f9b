// The open sockets of this process, which a forked child must not keep.
//
// A child that kept them would hide the parent's death from its peers, since a connection ends with
// its last descriptor. In a child each of these descriptors leads to /dev/null: the number stays
// taken, so that nothing else is closed or written to in its place. Thread-safe.
#ifndef TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_
#define TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_

namespace tfhybrid {

// Forked children lose this socket from now on.
void KeepFromForkedChildren(int socket);
// Closes a socket that was given to KeepFromForkedChildren().
void CloseSocket(int socket);

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_EXCHANGE_OPEN_SOCKETS_H_
