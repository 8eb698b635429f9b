// A table in a temporary directory, and a plain model of what it must hold.
#ifndef TFHYBRID_TESTS_NATIVE_STORE_TABLE_FIXTURE_H_
#define TFHYBRID_TESTS_NATIVE_STORE_TABLE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_loader.h"
#include "core/store/table_reader.h"
#include "core/store/table_writer.h"
#include "shm/status_asserts.h"
#include "shm/temporary_directory.h"

namespace tfhybrid {

constexpr uint64_t kToken = 0x1234567890abcdef;
constexpr int64_t kMinKey = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxKey = std::numeric_limits<int64_t>::max();

inline TableConfig ConfigOf(const std::string& name, int64_t dim) {
  return {name, dim, {InitializerKind::kUniform, -0.05, 0.05}, 99};
}

inline OptimizerConfig OptimizerOf(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

inline std::vector<int64_t> KeysBetween(int64_t first, int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = first; key < end; ++key) keys.push_back(key);
  return keys;
}

inline std::vector<float> InitialRows(const TableConfig& config, const std::vector<int64_t>& keys) {
  const uint64_t seed =
      TableSeed(config.job_seed, config.name.data(), static_cast<int64_t>(config.name.size()));
  std::vector<float> rows(keys.size() * static_cast<size_t>(config.dim));
  for (size_t i = 0; i < keys.size(); ++i) {
    InitializeRow(config.initializer, seed, keys[i],
                  Span<float>(rows.data() + i * static_cast<size_t>(config.dim), config.dim));
  }
  return rows;
}

// Embeddings for keys, the optimizer's state fresh.
inline Status WriteRows(TableWriter* writer, const std::vector<int64_t>& keys,
                        const std::vector<float>& rows) {
  return TableLoader(writer).WriteRows(keys, rows.data(), nullptr, nullptr, RunInline);
}

class TableFixture : public testing::Test {
 protected:
  std::unique_ptr<TableWriter> Create(const TableConfig& config) {
    auto writer = TableWriter::Create(directory_.path(), kToken, config);
    EXPECT_OK(writer);
    return writer.ok() ? writer.Take() : nullptr;
  }
  std::unique_ptr<TableReader> Open(const std::string& name) {
    auto reader = TableReader::Open(directory_.path(), kToken, name);
    EXPECT_OK(reader);
    return reader.ok() ? reader.Take() : nullptr;
  }
  static std::vector<float> Lookup(TableReader* reader, const std::vector<int64_t>& keys) {
    std::vector<float> rows(keys.size() * static_cast<size_t>(reader->dim()));
    EXPECT_OK(reader->Lookup(keys, rows.data()));
    return rows;
  }
  // Gives each of the (distinct) keys a row.
  static Status CreateRows(TableWriter* writer, const std::vector<int64_t>& keys) {
    RowSet set;
    TFHYBRID_RETURN_IF_ERROR(writer->CreateMissing(keys, &set, RowStart::kInitial, RunInline));
    writer->PublishVersion(writer->version() + 1);
    return Status::Ok();
  }
  // One step: every row of `keys` (distinct) gets its gradient, scaled.
  static Status Update(TableWriter* writer, const std::vector<int64_t>& keys,
                       const std::vector<float>& gradients, float scale, float learning_rate) {
    RowSet set;
    TFHYBRID_RETURN_IF_ERROR(writer->CreateMissing(keys, &set, RowStart::kInitial, RunInline));
    const OptimizerStep step = PrepareStep(writer->optimizer(), learning_rate,
                                           static_cast<int64_t>(writer->version()) + 1);
    for (size_t i = 0; i < keys.size(); ++i) {
      const TableRow row = writer->chunks().Row(set.rows[i]);
      ApplyRow(step, row.dim, gradients.data() + static_cast<int64_t>(i) * row.dim, scale,
               row.embedding, row.state);
    }
    writer->PublishVersion(writer->version() + 1);
    return Status::Ok();
  }

  TemporaryDirectory directory_;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_STORE_TABLE_FIXTURE_H_
