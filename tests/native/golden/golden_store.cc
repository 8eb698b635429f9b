#include "golden/golden_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/store/table_loader.h"
#include "core/update/host_update.h"
#include "shm/status_asserts.h"

namespace tfhybrid {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
// Ten keys are written, and ten that are new updated with four of them.
const std::vector<int64_t> kWritten = {0, -1, kMin, kMax, 1, 2, 3, 1000, -1000, kMin + 1};
const std::vector<int64_t> kUpdated = {-1, kMax, 3, -1000, kMax - 1, -2, 4, 5, 6, 7, 8, 9, 10, 11};

void WriteGoldenRows(TableWriter* table) {
  std::vector<float> embeddings, accumulators;
  for (size_t i = 0; i < kWritten.size() * kGoldenDim; ++i) {
    embeddings.push_back(static_cast<float>(i) / 8 - 1);
    accumulators.push_back(static_cast<float>(i) / 16);
  }
  EXPECT_OK(TableLoader(table).WriteRows(kWritten, embeddings.data(), accumulators.data(), nullptr,
                                         RunInline));
}

void FillGoldenMessage(const MessageBuilder& message) {
  for (size_t i = 0; i < kUpdated.size(); ++i) message.keys(0)[i] = kUpdated[i];
  for (size_t i = 0; i < kUpdated.size() * kGoldenDim; ++i) {
    message.gradients(0)[i] = static_cast<float>(i % 7) / 4 - 0.5f;
  }
}

}  // namespace

StoreConfig GoldenStoreConfig(const std::string& shm_directory) {
  return {shm_directory, "golden", 0, "rank 0", 0x0123456789abcdef};
}

UpdateSettings GoldenSettings() {
  UpdateSettings settings = {{{kGoldenTable}, {kGoldenDim}}, {0}, Reduction::kSum};
  settings.local_ranks = 1;
  return settings;
}

Files MakeGoldenStore(const std::string& shm_directory) {
  std::vector<std::string> reclaimed;
  auto created = Store::Create(GoldenStoreConfig(shm_directory), &reclaimed);
  EXPECT_OK(created);
  const std::shared_ptr<Store> store = created.Take();
  const TableConfig config = {kGoldenTable, kGoldenDim, {InitializerKind::kNormal, 0, 0.5}, 99};
  auto opened = store->OpenNamed(config, 0);
  EXPECT_OK(opened);
  TableWriter* table = opened.value()->writer.get();
  OptimizerConfig optimizer;
  optimizer.kind = OptimizerKind::kAdagrad;
  EXPECT_OK(table->SetOptimizer(optimizer));
  WriteGoldenRows(table);

  auto update = HostUpdate::Open(store, kGoldenUpdate, GoldenSettings());
  EXPECT_OK(update);
  const std::vector<int64_t> counts = {static_cast<int64_t>(kUpdated.size())};
  EXPECT_OK(update.value()->Post(counts, FillGoldenMessage));
  auto messages = update.value()->Collect();
  EXPECT_OK(messages);
  const std::vector<float> rates = {kGoldenRate};
  EXPECT_OK(update.value()->Apply(messages.value(), {rates}, {table}, RunInline));

  Files files = ReadFiles(store->directory());
  files.erase("rank-0");  // no segment, and it names the process
  for (auto& [name, content] : files) {
    Reseal(0, &content);
    content = Trimmed(content);
    content.resize(std::max(content.size(), sizeof(SegmentHeader)));  // its checksum may end in 0
  }
  return files;
}

Files Restored(Files kept) {
  for (auto& [name, content] : kept) {
    content.resize(HeaderOf(content).file_bytes);
    Reseal(geteuid(), &content);
  }
  return kept;
}

}  // namespace tfhybrid
