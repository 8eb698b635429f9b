// Where the rows of keys lie in memory: found by a lookup, or ahead of it.
#include <algorithm>
#include <utility>

#include "core/store/table_reader.h"

namespace tfhybrid {
namespace {

// Rough cost of finding a row, and of locating one whose number is known, in nanoseconds.
constexpr int64_t kFindRowCostNs = 30;
constexpr int64_t kLocateRowCostNs = 2;

}  // namespace

Status TableReader::ResolveNew(const MappedView& view, int64_t* row) const {
  const auto rows = static_cast<int64_t>(LoadAcquire(segment().counters.rows));
  // A row that was removed meanwhile; lookups of a training step meet none.
  const bool removed = *row >= rows && shape().policy.kind != PolicyKind::kNone;
  if ((*row < 0 || *row >= rows) && !removed) {
    return Status::Error(StatusCode::kDataLoss, "The index of table '", name(),
                         "' is damaged: it names row ", *row, " of ", rows);
  }
  // Created after this lookup began, in a chunk that is not mapped yet: when it began, the key read
  // its initial value.
  if (removed || *row >= view.capacity) *row = KeyIndex::kMissing;
  return Status::Ok();
}

int64_t TableReader::MappedRows(const MappedView& view) const {
  return std::min(static_cast<int64_t>(LoadAcquire(segment().counters.rows)), view.capacity);
}

// A group of keys is found together.
Status TableReader::FindNumbers(const MappedView& view, Span<const int64_t> keys,
                                int64_t* numbers) const {
  const auto known_rows = static_cast<uint64_t>(MappedRows(view));
  view.index.FindBatch(keys, Span<int64_t>(numbers, keys.size()));
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (static_cast<uint64_t>(numbers[i]) >= known_rows && numbers[i] != KeyIndex::kMissing) {
      TFHYBRID_RETURN_IF_ERROR(ResolveNew(view, &numbers[i]));
    }
  }
  return Status::Ok();
}

Status TableReader::FindRows(const MappedView& view, Span<const int64_t> keys,
                             const float** rows) const {
  int64_t found[KeyIndex::kGroup];
  TFHYBRID_RETURN_IF_ERROR(FindNumbers(view, keys, found));
  for (int64_t i = 0; i < keys.size(); ++i) rows[i] = RowOrNull(view, found[i]);
  return Status::Ok();
}

Status TableReader::FindAll(const MappedView& view, Span<const int64_t> keys,
                            int64_t* numbers) const {
  for (int64_t begin = 0; begin < keys.size(); begin += KeyIndex::kGroup) {
    const int64_t count = std::min(KeyIndex::kGroup, keys.size() - begin);
    TFHYBRID_RETURN_IF_ERROR(FindNumbers(view, keys.subspan(begin, count), numbers + begin));
  }
  return Status::Ok();
}

Status TableReader::FindMissing(const MappedView& view, Span<const int64_t> keys,
                                int64_t* numbers) const {
  int64_t missing[KeyIndex::kGroup], wanted[KeyIndex::kGroup], found[KeyIndex::kGroup];
  int64_t count = 0;
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (numbers[i] == KeyIndex::kMissing) {
      missing[count] = i;
      wanted[count++] = keys[i];
    }
    if (count < KeyIndex::kGroup && i + 1 < keys.size()) continue;
    TFHYBRID_RETURN_IF_ERROR(FindNumbers(view, Span<const int64_t>(wanted, count), found));
    for (int64_t j = 0; j < count; ++j) numbers[missing[j]] = found[j];
    count = 0;
  }
  return Status::Ok();
}

Result<FoundRows> TableReader::Find(Span<const int64_t> keys, const ParallelFor& parallel_for,
                                    RowNumbers ahead) {
  FoundRows found;
  if (in_files()) return found;
  const uint64_t moves = LoadAcquire(segment().counters.moves);
  TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedView> view, CurrentView());
  found.mapped = view;
  found.rows.resize(static_cast<size_t>(keys.size()));
  const bool known = static_cast<int64_t>(ahead.rows.size()) == keys.size() && ahead.moves == moves;
  found.numbers = known ? std::move(ahead) : RowNumbers{moves, {}};
  found.numbers.rows.resize(static_cast<size_t>(keys.size()));
  const int64_t cost = known ? kLocateRowCostNs : kFindRowCostNs;
  TFHYBRID_RETURN_IF_ERROR(
      RunParts(parallel_for, keys.size(), cost, [&](int64_t begin, int64_t end) {
        const Span<const int64_t> part = keys.subspan(begin, end - begin);
        int64_t* const numbers = found.numbers.rows.data() + begin;
        TFHYBRID_RETURN_IF_ERROR(known ? FindMissing(*view, part, numbers)
                                       : FindAll(*view, part, numbers));
        for (int64_t i = 0; i < part.size(); ++i) {
          found.rows[static_cast<size_t>(begin + i)] = RowOrNull(*view, numbers[i]);
        }
        return Status::Ok();
      }));
  return found;
}

// What it finds while rows move is not used: `moves` is raised after that.
RowNumbers TableReader::FindAhead(Span<const int64_t> keys, const ParallelFor& parallel_for) {
  if (in_files()) return {};
  RowNumbers ahead = {LoadAcquire(segment().counters.moves), {}};
  const Result<std::shared_ptr<const MappedView>> view = CurrentView();
  if (!view.ok()) return {};
  ahead.rows.resize(static_cast<size_t>(keys.size()));
  const Status found =
      RunParts(parallel_for, keys.size(), kFindRowCostNs, [&](int64_t begin, int64_t end) {
        return FindAll(*view.value(), keys.subspan(begin, end - begin), ahead.rows.data() + begin);
      });
  return found.ok() ? std::move(ahead) : RowNumbers();
}

}  // namespace tfhybrid
