#include "core/passes/pass_report.h"

#include <algorithm>
#include <iterator>

#include "core/shm/directory.h"
#include "core/shm/mapped_file.h"

namespace tfhybrid {
namespace {

// A file that opens with the header of a segment of that kind; null where it does not.
template <typename Segment>
const Segment* As(const Result<MappedFile>& file, SegmentKind kind) {
  if (!file.ok() || file.value().size() < static_cast<int64_t>(sizeof(Segment))) return nullptr;
  const auto* segment = reinterpret_cast<const Segment*>(file.value().data());
  const bool known = std::equal(std::begin(kMagic), std::end(kMagic), segment->header.magic) &&
                     segment->header.format == kFormatVersion &&
                     segment->header.kind == static_cast<uint32_t>(kind);
  return known ? segment : nullptr;
}

void AddPass(const std::string& path, PassReport* report) {
  const Result<MappedFile> file = MappedFile::OpenReadOnly(path);
  const auto* const pass = As<PassSegment>(file, SegmentKind::kPass);
  if (pass == nullptr) return;
  const auto room = static_cast<uint64_t>(file.value().size()) - sizeof(PassSegment);
  const auto* const tables = reinterpret_cast<const PassTable*>(pass + 1);
  ++report->standing;
  report->bytes += file.value().size();
  for (uint64_t t = 0; t < pass->tables && t < room / sizeof(PassTable); ++t) {
    report->rows += static_cast<int64_t>(tables[t].keys);
  }
}

}  // namespace

PassReport ReportPasses(const std::string& directory) {
  PassReport report;
  const Result<MappedFile> file = MappedFile::OpenReadOnly(directory + "/pass-bell");
  if (const auto* const bell = As<BellSegment>(file, SegmentKind::kBell); bell != nullptr) {
    for (int counter = 0; counter < kPassCounters; ++counter) {
      report.counts[counter] =
          static_cast<int64_t>(__atomic_load_n(&bell->counts[counter], __ATOMIC_RELAXED));
    }
  }
  for (const std::string& name : NamesOrNone(directory)) {
    const bool whole = !HasSuffix(name, ".new");
    if (name.rfind("pass-", 0) == 0 && whole) AddPass(directory + "/" + name, &report);
  }
  return report;
}

}  // namespace tfhybrid
