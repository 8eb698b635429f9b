// Mailbox: where one process leaves messages of gradients for the leader of its host.
//
//   NAME.mail       MailboxSegment: what is posted
//   NAME.mail.G     MessagesSegment of generation G: the words themselves. A message that does not
//                   fit goes into a larger one, which is complete before its number is stored.
//
// One process writes, the leader reads. The protocol: the writer fills the words, then counts
// `posted` up (release, wakes the leader); it touches the words again only when the tables have
// reached the version that this post led to. So the words of an update lie still until it is
// published, and a new leader can finish what a killed one began.
//
// Neither class is thread-safe.
#ifndef TFHYBRID_CORE_UPDATE_MAILBOX_H_
#define TFHYBRID_CORE_UPDATE_MAILBOX_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "core/shm/mapped_file.h"
#include "core/store/layout.h"
#include "core/util/span.h"
#include "core/util/status.h"

namespace tfhybrid {

struct MailboxSegment {
  SegmentHeader header;
  alignas(64) uint64_t posted;  // atomic: messages so far; a futex watches it
  uint64_t generation;          // of the words, published by `posted`
  uint64_t words;
  uint64_t failed;  // not 0: the writer cannot post, and `failure` says why
  char failure[kMaxFailure];
};
static_assert(sizeof(MailboxSegment) <= kPageBytes);

// Behind a page of header: int64 [words].
using MessagesSegment = SegmentHeader;

class Mailbox {
 public:
  // Creates NAME.mail; `path` is without the ".mail".
  static Result<Mailbox> Create(const std::string& path, uint64_t token);

  // Room for a message. REQUIRES: the tables have reached the version that the last post led to.
  Result<Span<int64_t>> Write(int64_t words);
  // Words for which Write() cannot fail.
  int64_t Room() const;
  // Publishes what was written into the room that Write() gave last.
  void Post();
  // Instead of a message.
  void PostFailure(const std::string& why);
  uint64_t posted() const { return segment()->posted; }

 private:
  Mailbox(std::string path, uint64_t token, MappedFile control)
      : path_(std::move(path)), token_(token), control_(std::move(control)) {}
  MailboxSegment* segment() const {
    return reinterpret_cast<MailboxSegment*>(control_.mutable_data());
  }

  std::string path_;
  uint64_t token_ = 0;
  MappedFile control_;
  MappedFile messages_;
  int64_t words_ = 0;
};

class MailboxReader {
 public:
  // kNotFound until the writer has created it.
  static Result<MailboxReader> Open(const std::string& path, uint64_t token);
  // Waits until the writer has created it, or fails with what `check_alive` returns.
  static Result<MailboxReader> Await(const std::string& path, uint64_t token,
                                     const std::function<Status()>& check_alive);

  // Waits until `posted` messages have come; between slices of waiting it fails with what
  // `check_alive` returns, or with the writer's own failure.
  Status Wait(uint64_t posted, const std::function<Status()>& check_alive) const;
  // The last message. Valid until the next call. REQUIRES: at least one was posted.
  Result<Span<const int64_t>> Words();

 private:
  MailboxReader(std::string path, uint64_t token, MappedFile control)
      : path_(std::move(path)), token_(token), control_(std::move(control)) {}
  const MailboxSegment& segment() const {
    return *reinterpret_cast<const MailboxSegment*>(control_.data());
  }

  std::string path_;
  uint64_t token_ = 0;
  MappedFile control_;
  MappedFile messages_;
  uint64_t generation_ = 0;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_CORE_UPDATE_MAILBOX_H_
