#include "core/update/mailbox.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/shm/wait_word.h"
#include "core/store/segment.h"
#include "core/util/fault_point.h"

namespace tfhybrid {
namespace {

constexpr int64_t kFirstWords = int64_t{1} << 14;
constexpr auto kOpenPoll = std::chrono::milliseconds(1);

std::string ControlPath(const std::string& path) { return path + ".mail"; }

std::string MessagesPath(const std::string& path, uint64_t generation) {
  return path + ".mail." + std::to_string(generation);
}

int64_t MessagesBytes(int64_t words) {
  return kPageBytes + words * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace

Result<Mailbox> Mailbox::Create(const std::string& path, uint64_t token) {
  // Under a temporary name until it is complete, because the leader waits for the final one.
  const std::string temporary = ControlPath(path) + ".new";
  TFHYBRID_ASSIGN_OR_RETURN(MappedFile control,
                            CreateSegment(temporary, {SegmentKind::kMailbox, token, 0},
                                          sizeof(MailboxSegment), "a mailbox of gradients"));
  if (std::rename(temporary.c_str(), ControlPath(path).c_str()) != 0) {
    return Status::Error(StatusCode::kSystem, "Cannot rename ", temporary);
  }
  return Mailbox(path, token, std::move(control));
}

Result<Span<int64_t>> Mailbox::Write(int64_t words) {
  if (!messages_.mapped() || MessagesBytes(words) > messages_.size()) {
    int64_t room = std::max(kFirstWords, words + words / 4);
    const uint64_t generation = segment()->generation + 1;
    TFHYBRID_ASSIGN_OR_RETURN(
        MappedFile larger,
        CreateSegment(MessagesPath(path_, generation), {SegmentKind::kMessages, token_, generation},
                      MessagesBytes(room), "the gradients of a step"));
    TFHYBRID_FAULT_POINT();
    // The leader has done with the last message and takes its next look after the next post.
    if (messages_.mapped()) unlink(MessagesPath(path_, generation - 1).c_str());
    TFHYBRID_FAULT_POINT();
    messages_ = std::move(larger);
    segment()->generation = generation;
    TFHYBRID_FAULT_POINT();
  }
  words_ = words;
  return Span<int64_t>(reinterpret_cast<int64_t*>(messages_.mutable_data() + kPageBytes), words);
}

int64_t Mailbox::Room() const {
  return messages_.mapped() ? (messages_.size() - kPageBytes) / int64_t{sizeof(int64_t)} : 0;
}

void Mailbox::Post() {
  segment()->failed = 0;
  segment()->words = static_cast<uint64_t>(words_);
  TFHYBRID_FAULT_POINT();
  PublishWord(&segment()->posted, segment()->posted + 1);
}

void Mailbox::PostFailure(const std::string& why) {
  std::strncpy(segment()->failure, why.c_str(), kMaxFailure - 1);
  segment()->failed = 1;
  PublishWord(&segment()->posted, segment()->posted + 1);
}

Result<MailboxReader> MailboxReader::Open(const std::string& path, uint64_t token) {
  TFHYBRID_ASSIGN_OR_RETURN(
      MappedFile control,
      OpenSegment(ControlPath(path), {SegmentKind::kMailbox, token, 0}, sizeof(MailboxSegment)));
  return MailboxReader(path, token, std::move(control));
}

Result<MailboxReader> MailboxReader::Await(const std::string& path, uint64_t token,
                                           const std::function<Status()>& check_alive) {
  while (true) {
    Result<MailboxReader> reader = Open(path, token);
    if (reader.ok() || reader.status().code() != StatusCode::kNotFound) return reader;
    TFHYBRID_RETURN_IF_ERROR(check_alive());
    std::this_thread::sleep_for(kOpenPoll);
  }
}

Status MailboxReader::Wait(uint64_t posted, const std::function<Status()>& check_alive) const {
  while (!WaitWord(&segment().posted, posted, kWaitSliceMs)) {
    TFHYBRID_RETURN_IF_ERROR(check_alive());
  }
  if (segment().failed == 0) return Status::Ok();
  return Status::Error(StatusCode::kFailedPrecondition,
                       std::string(segment().failure, strnlen(segment().failure, kMaxFailure)));
}

Result<Span<const int64_t>> MailboxReader::Words() {
  // The acquire load of `posted` pairs with the writer's release: generation and words belong to
  // the message, and the writer leaves them alone until this one is applied.
  LoadWord(&segment().posted);
  const uint64_t generation = segment().generation;
  const auto words = static_cast<int64_t>(segment().words);
  if (generation != generation_ || !messages_.mapped()) {
    TFHYBRID_ASSIGN_OR_RETURN(
        messages_, OpenSegment(MessagesPath(path_, generation),
                               {SegmentKind::kMessages, token_, generation}, kPageBytes));
    generation_ = generation;
  }
  if (words < 0 || words > (messages_.size() - kPageBytes) / int64_t{sizeof(int64_t)}) {
    return Status::Error(StatusCode::kDataLoss, ControlPath(path_), " is damaged: ", words,
                         " words in ", messages_.size(), " bytes");
  }
  return Span<const int64_t>(reinterpret_cast<const int64_t*>(messages_.data() + kPageBytes),
                             words);
}

}  // namespace tfhybrid
