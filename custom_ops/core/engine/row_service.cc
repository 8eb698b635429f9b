#include "core/engine/row_service.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/exchange/row_frames.h"
#include "core/util/counters.h"
#include "core/util/flush_denormals.h"

namespace tfhybrid {
namespace {

// Size of a part that is taken by its reader while the next rows are looked up. A part of this size
// stays in a core's cache until the kernel has it; smaller ones wake the reader more often.
constexpr int64_t kPartWords = (int64_t{768} << 10) / int64_t{sizeof(int64_t)};

Status CheckDim(const OpenTable& table, int64_t dim) {
  if (table.reader->dim() == dim) return Status::Ok();
  return Status::Error(StatusCode::kInvalidArgument, "Table '", table.reader->name(),
                       "' has embeddings of ", table.reader->dim(),
                       " floats here. Received: ", dim);
}

bool NamesHandles(FrameKind kind) {
  return kind == FrameKind::kReadHandles || kind == FrameKind::kReadMarkedHandles;
}

bool WantsMarks(FrameKind kind) {
  return kind == FrameKind::kReadMarked || kind == FrameKind::kReadMarkedHandles;
}

// The words in front of an answer's rows.
std::vector<int64_t> HeadOf(const std::vector<uint64_t>& versions,
                            const std::vector<int64_t>& marks) {
  std::vector<int64_t> head(versions.begin(), versions.end());
  head.insert(head.end(), marks.begin(), marks.end());
  return head;
}

Status SendRows(Connection* connection, FrameKind kind,
                const std::vector<Span<const int64_t>>& pieces) {
  for (const Span<const int64_t>& piece : pieces) {
    AddTo(Counter::kServedBytes, piece.size() * static_cast<int64_t>(sizeof(int64_t)));
  }
  return connection->Send(kind, pieces);
}

}  // namespace

void RowService::Serve(int64_t host, LinkPurpose purpose, std::unique_ptr<Connection> connection) {
  const MutexLock guard(mutex_);
  if (closed_) return;
  for (auto served = served_.begin(); served != served_.end();) {
    if (!served->done) {
      ++served;
      continue;
    }
    served->thread.join();
    served = served_.erase(served);
  }
  served_.emplace_back();
  Served* const served = &served_.back();
  if (purpose == LinkPurpose::kUpdates) inbox_.HostIsThere(host);
  served->purpose = purpose;
  served->connection = std::move(connection);
  served->thread = std::thread([this, host, purpose, served] { Run(host, purpose, served); });
}

int64_t RowService::CountOfReaders() {
  const MutexLock guard(mutex_);
  return std::count_if(served_.begin(), served_.end(), [](const Served& served) {
    return served.purpose == LinkPurpose::kReads && !served.done;
  });
}

void RowService::Close() {
  const MutexLock guard(mutex_);
  closed_ = true;
  for (Served& served : served_) served.connection->Shut();
  for (Served& served : served_) served.thread.join();
  served_.clear();
}

void RowService::Run(int64_t host, LinkPurpose purpose, Served* served) {
  const FlushDenormals flush;
  Status ended;
  try {
    ended = Answer(host, served->connection.get());
  } catch (const std::bad_alloc&) {
    ended = Status::Error(StatusCode::kResourceExhausted, "Out of memory for what ",
                          served->connection->peer(), " sent");
  }
  served->connection->Shut();
  if (purpose == LinkPurpose::kUpdates) inbox_.HostIsGone(host, ended);
  if (purpose == LinkPurpose::kPasses) passes_->Fail(ended);
  served->done = true;
}

Status RowService::Answer(int64_t host, Connection* connection) {
  for (;;) {
    TFHYBRID_ASSIGN_OR_RETURN(Frame frame, connection->Receive());
    Status answered;
    switch (frame.kind) {
      case FrameKind::kUpdate:
      case FrameKind::kStaged:
      case FrameKind::kCommit:
        TFHYBRID_RETURN_IF_ERROR(inbox_.Put(host, std::move(frame)));
        continue;
      case FrameKind::kAnnounce:
      case FrameKind::kRelease:
      case FrameKind::kFresh:
      case FrameKind::kFailure:
        TFHYBRID_RETURN_IF_ERROR(passes_->Take(host, std::move(frame)));
        continue;
      case FrameKind::kRead:
      case FrameKind::kReadHandles:
      case FrameKind::kReadMarked:
      case FrameKind::kReadMarkedHandles:
        answered = AnswerRead(connection, frame.kind, frame.payload.words());
        break;
      case FrameKind::kScan:
        answered = AnswerScan(connection, frame.payload.words());
        break;
      default:
        return Status::Error(StatusCode::kInvalidArgument, connection->peer(),
                             " sent a frame of the unknown kind ",
                             static_cast<uint32_t>(frame.kind));
    }
    if (answered.ok()) continue;
    // This is useless if the connection itself failed.
    const std::vector<int64_t> why = FailureWords(answered);
    TFHYBRID_RETURN_IF_ERROR(connection->Send(FrameKind::kFailure, {why}));
  }
}

Status RowService::AnswerRead(Connection* connection, FrameKind kind, Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(std::vector<AskedKeys> tables, ParseRead(words));
  std::vector<std::vector<int64_t>> keys(NamesHandles(kind) ? tables.size() : 0);  // of key handles
  for (size_t t = 0; t < keys.size(); ++t) {
    keys[t].resize(static_cast<size_t>(tables[t].keys.size()));
    TFHYBRID_ASSIGN_OR_RETURN(const uint64_t staleness,
                              keys_->Find(tables[t].table, tables[t].keys, keys[t].data()));
    tables[t].keys = keys[t];
    tables[t].min_version -= std::min(tables[t].min_version, staleness);
  }
  int64_t size = 0;
  std::vector<TableRead> reads;
  for (const AskedKeys& asked : tables) {
    TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> table, tables_->Await(asked.table));
    TFHYBRID_RETURN_IF_ERROR(CheckDim(*table, asked.dim));
    reads.push_back({std::move(table), asked.min_version, asked.keys, nullptr});
    size += WordsOfRows(asked.keys.size(), asked.dim);
  }
  std::vector<int64_t> marks;
  if (WantsMarks(kind)) marks = MarkReads(&reads);
  if (size > kPartWords) {
    TFHYBRID_ASSIGN_OR_RETURN(const bool sent, SendParts(connection, reads, marks));
    if (sent) return Status::Ok();
  }
  const WordBuffer embeddings = WordBuffer::OfSize(size);
  int64_t at = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    const int64_t of_table = WordsOfRows(tables[t].keys.size(), tables[t].dim);
    if (of_table > 0) embeddings.data[at + of_table - 1] = 0;  // with the padding
    reads[t].embeddings = reinterpret_cast<float*>(embeddings.data.get() + at);
    at += of_table;
  }
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, tables_->Read(reads));
  const std::vector<int64_t> head = HeadOf(versions, marks);
  for (const AskedKeys& asked : tables) AddTo(Counter::kServedRows, asked.keys.size());
  return SendRows(connection, FrameKind::kRows, {head, embeddings.words()});
}

Result<bool> RowService::SendParts(Connection* connection, const std::vector<TableRead>& reads,
                                   const std::vector<int64_t>& marks) {
  std::vector<int64_t> part;
  const auto send = [&](const std::vector<int64_t>& head, FrameKind kind) {
    return SendRows(connection, kind, {head, part});
  };
  const auto copy = [&](const std::function<bool()>& have_changed) -> Status {
    for (const TableRead& read : reads) {
      const int64_t dim = read.table->reader->dim();
      // An even number of rows, so that all but a table's last one end with a word.
      const int64_t max_rows = std::max<int64_t>(kPartWords / dim, 1) * 2;
      for (int64_t first = 0; first < read.keys.size(); first += max_rows) {
        if (have_changed()) return Status::Ok();
        if (!part.empty()) TFHYBRID_RETURN_IF_ERROR(send({}, FrameKind::kSomeRows));
        const int64_t count = std::min(max_rows, read.keys.size() - first);
        part.resize(static_cast<size_t>(WordsOfRows(count, dim)));
        part.back() = 0;  // with the padding
        uint8_t* const has_row = read.has_row == nullptr ? nullptr : read.has_row + first;
        TFHYBRID_RETURN_IF_ERROR(read.table->reader->Lookup(read.keys.subspan(first, count),
                                                            reinterpret_cast<float*>(part.data()),
                                                            UnseenKeys{false, false, has_row}));
      }
    }
    return Status::Ok();
  };
  TFHYBRID_ASSIGN_OR_RETURN(const auto versions,
                            TryReadVersion(reads, tables_->check_alive(), copy));
  if (!versions.has_value()) return false;
  // The last part goes with what makes them an answer.
  TFHYBRID_RETURN_IF_ERROR(send(HeadOf(*versions, marks), FrameKind::kRows));
  for (const TableRead& read : reads) AddTo(Counter::kServedRows, read.keys.size());
  return true;
}

Status RowService::AnswerScan(Connection* connection, Span<const int64_t> words) {
  TFHYBRID_ASSIGN_OR_RETURN(const AskedRows asked, ParseScan(words));
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table, tables_->Await(asked.table));
  TFHYBRID_RETURN_IF_ERROR(CheckDim(*table, asked.dim));
  const TableStats stats = table->reader->Stats();
  const int64_t count = std::clamp<int64_t>(stats.rows - asked.first, 0, asked.count);
  const int64_t floats = WordsOfRows(count, asked.dim);
  const WordBuffer found = WordBuffer::OfSize(3 + count + floats);
  int64_t* const keys = found.data.get() + 3;
  found.data[0] = stats.rows;
  found.data[1] = stats.bytes;
  found.data[2] = count;
  if (floats > 0) keys[count + floats - 1] = 0;
  TFHYBRID_RETURN_IF_ERROR(table->reader->ReadRows(count == 0 ? 0 : asked.first, count, keys,
                                                   reinterpret_cast<float*>(keys + count)));
  return connection->Send(FrameKind::kRows, {found.words()});
}

}  // namespace tfhybrid
