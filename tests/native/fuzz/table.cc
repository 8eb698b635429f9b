// The files of a table: whatever they hold, readers and a new leader get an answer or an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_loader.h"
#include "core/store/table_reader.h"
#include "core/store/table_writer.h"
#include "fuzz/patches.h"
#include "shm/temporary_directory.h"

namespace tfhybrid {
namespace {

constexpr uint64_t kToken = 7;
constexpr int64_t kDim = 4;
constexpr int64_t kMaxDim = 65536;
constexpr int64_t kRows = 70;  // two chunks, and a third one after a few more

void Must(const Status& status) {
  if (!status.ok()) std::abort();
}

// An error is as good as an answer.
void Ignore(const Status&) {}

std::vector<int64_t> Keys(int64_t count) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> keys = {kMin, kMax, -1};
  for (int64_t key = 0; key < count; ++key) keys.push_back(key);
  keys.resize(static_cast<size_t>(count));
  return keys;
}

// Those of the table and as many that it does not have; fewer where a row is long.
std::vector<int64_t> KeysFor(int64_t dim) { return Keys(1 + (2 * kRows - 1) * kDim / dim); }

// t.index.1, t.rows.0, t.rows.1, t.state.0, t.state.1, t.table
Files ValidTable() {
  const TemporaryDirectory directory;
  const TableConfig config = {"t", kDim, {InitializerKind::kUniform, -0.05, 0.05}, 0};
  const auto writer = TableWriter::Create(directory.path(), kToken, config).Take();
  OptimizerConfig optimizer;
  optimizer.kind = OptimizerKind::kAdagrad;
  Must(writer->SetOptimizer(optimizer));
  const std::vector<int64_t> keys = Keys(kRows);
  const std::vector<float> rows(kRows * kDim, 0.5f);
  Must(TableLoader(writer.get()).WriteRows(keys, rows.data(), nullptr, nullptr, RunInline));
  return ReadFiles(directory.path());
}

void Read(const std::string& directory) {
  const auto opened = TableReader::Open(directory, kToken, "t");
  if (!opened.ok()) return;
  TableReader* reader = opened.value().get();
  if (reader->dim() < 1 || reader->dim() > kMaxDim) std::abort();
  const std::vector<int64_t> keys = KeysFor(reader->dim());
  std::vector<float> rows(keys.size() * static_cast<size_t>(reader->dim()));
  Ignore(reader->Lookup(keys, rows.data()));
  std::vector<int64_t> read(keys);
  const auto count = std::min(kRows, static_cast<int64_t>(keys.size()));
  Ignore(reader->ReadRows(0, count, read.data(), rows.data()));
  if (reader->Reached(1)) {
    Ignore(reader->WaitVersion(1, [] { return Status::Error(StatusCode::kPeerDied, ""); }));
  }
  reader->Stats();
}

void Recover(const std::string& directory) {
  const auto attached = TableWriter::Attach(directory, kToken, "t");
  if (!attached.ok()) return;
  TableWriter* writer = attached.value().get();
  const std::vector<int64_t> keys = KeysFor(writer->dim());
  const std::vector<float> rows(keys.size() * static_cast<size_t>(writer->dim()), 1.0f);
  std::vector<float> states(static_cast<size_t>(writer->rows() * writer->chunks().state_floats()));
  Must(writer->chunks().ReadState(0, writer->rows(), states.data()));
  Ignore(TableLoader(writer).WriteRows(keys, rows.data(), nullptr, nullptr, RunInline));
  writer->PublishVersion(writer->version() + 1);
}

}  // namespace
}  // namespace tfhybrid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tfhybrid;
  static const Files* const valid = new Files(ValidTable());
  const TemporaryDirectory directory;
  WriteFiles(Patched(*valid, FuzzInput(data, size)), directory.path());
  Read(directory.path());
  Recover(directory.path());
  Read(directory.path());
  return 0;
}
