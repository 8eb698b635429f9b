#include "core/exchange/pass_frames.h"

#include <cstring>

#include "core/exchange/row_frames.h"
#include "core/util/words.h"

namespace tfhybrid {
namespace {

int64_t FlagWords(int64_t keys) { return (keys + 7) / 8; }

}  // namespace

std::vector<int64_t> AnnounceWords(const AnnouncedKeys& announced) {
  WordWriter out;
  out.Put(announced.table, announced.dim, announced.number, announced.keys.size());
  return out.Take();
}

Result<AnnouncedKeys> ParseAnnounce(Span<const int64_t> words) {
  WordReader in(words);
  AnnouncedKeys announced;
  int64_t keys = 0;
  TFHYBRID_RETURN_IF_ERROR(in.Get(&announced.table, &announced.dim, &announced.number, &keys));
  TFHYBRID_RETURN_IF_ERROR(CheckRowsOfFrame(announced.dim, keys));
  TFHYBRID_RETURN_IF_ERROR(in.Get(keys, &announced.keys));
  if (announced.number > 0 && in.done()) return announced;
  return Status::Error(StatusCode::kInvalidArgument,
                       "An announcement has a number from 1 and nothing behind its keys. "
                       "Received: ",
                       announced.number);
}

FreshFrame MakeFresh(const FreshRows& fresh) {
  WordWriter out;
  out.Put(fresh.table, fresh.dim, static_cast<int64_t>(fresh.version), fresh.answers);
  int64_t decays = 0;
  static_assert(sizeof(decays) == sizeof(Decays));
  std::memcpy(&decays, &fresh.decays, sizeof(decays));
  out.Put(decays, fresh.keys.size());
  const std::vector<int64_t> head = out.Take();
  const auto front = static_cast<int64_t>(head.size());
  const int64_t count = fresh.keys.size(), flags = FlagWords(count);
  const int64_t rows = WordsOfRows(count, fresh.dim);
  FreshFrame frame = {WordBuffer::OfSize(front + count + flags + rows), nullptr, nullptr};
  int64_t* at = frame.words.data.get();
  std::memcpy(at, head.data(), head.size() * sizeof(int64_t));
  at += front;
  if (count > 0) {
    std::memcpy(at, fresh.keys.data(), static_cast<size_t>(count) * sizeof(int64_t));
    at[count + flags - 1] = 0;  // with the padding
    at[count + flags + rows - 1] = 0;
  }
  frame.has_row = reinterpret_cast<uint8_t*>(at + count);
  frame.rows = reinterpret_cast<float*>(at + count + flags);
  return frame;
}

Result<FreshRows> ParseFresh(Span<const int64_t> words) {
  WordReader in(words);
  FreshRows fresh;
  int64_t version = 0, decays = 0, count = 0;
  TFHYBRID_RETURN_IF_ERROR(
      in.Get(&fresh.table, &fresh.dim, &version, &fresh.answers, &decays, &count));
  TFHYBRID_RETURN_IF_ERROR(CheckRowsOfFrame(fresh.dim, count));
  fresh.version = static_cast<uint64_t>(version);
  std::memcpy(static_cast<void*>(&fresh.decays), &decays, sizeof(decays));
  Span<const int64_t> flags, rows;
  TFHYBRID_RETURN_IF_ERROR(in.Get(count, &fresh.keys));
  TFHYBRID_RETURN_IF_ERROR(in.Get(FlagWords(count), &flags));
  TFHYBRID_RETURN_IF_ERROR(in.Get(WordsOfRows(count, fresh.dim), &rows));
  fresh.has_row = reinterpret_cast<const uint8_t*>(flags.data());
  fresh.rows = reinterpret_cast<const float*>(rows.data());
  if (in.done()) return fresh;
  return Status::Error(StatusCode::kInvalidArgument, "A frame has words that say nothing");
}

}  // namespace tfhybrid
