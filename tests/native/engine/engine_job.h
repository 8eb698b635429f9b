// An engine of one rank with tables that start at zero, as a process without TensorFlow uses it: an
// update by a gradient of -1 of every key makes each number of each row that table's version.
#ifndef TFHYBRID_TESTS_NATIVE_ENGINE_ENGINE_JOB_H_
#define TFHYBRID_TESTS_NATIVE_ENGINE_ENGINE_JOB_H_

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "shm/status_asserts.h"
#include "store/table_fixture.h"

namespace tfhybrid {

class EngineJob {
 public:
  static constexpr int64_t kCacheBytes = 1 << 16;
  inline static const UpdateChoices kChoices = {"leaders", "sum", "float32", "none", 0.0f};

  // `files`: a directory for the rows of all tables; empty: they lie in memory.
  EngineJob(const std::string& shm_directory, const std::string& name,
            const MessageSchema& schema = {{"item"}, {2}}, const std::string& files = "") {
    std::vector<std::string> reclaimed;
    engine = Engine::Open({shm_directory, name, 0, "rank 0", kToken}, {}, &reclaimed).Take();
    for (size_t t = 0; t < schema.tables.size(); ++t) {
      TableConfig config = ConfigOf(schema, t);
      config.files = files;
      config.cache_bytes = files.empty() ? 0 : kCacheBytes;
      tables.push_back(engine->store().OpenNamed(config, 0).Take());
      EXPECT_OK(tables[t]->writer->SetOptimizer(OptimizerOf(OptimizerKind::kSgd)));
    }
    update = engine->Update(engine->OpenUpdate("sgd", schema.tables, kChoices).Take()).Take();
  }

  static TableConfig ConfigOf(const MessageSchema& schema, size_t table) {
    return {schema.tables[table], schema.dims[table], {InitializerKind::kZeros, 0, 0}, 99};
  }

  // Posts a gradient of each key, to all tables alike.
  void Post(const std::vector<int64_t>& keys, float gradient = -1.0f) const {
    const MessageSchema& schema = update->schema();
    const std::vector<int64_t> counts(tables.size(), static_cast<int64_t>(keys.size()));
    EXPECT_OK(update->host_update->Post(counts, [&](const MessageBuilder& message) {
      message.header()->samples = 1;
      for (size_t t = 0; t < tables.size(); ++t) {
        const auto table = static_cast<int64_t>(t);
        std::copy(keys.begin(), keys.end(), message.keys(table));
        std::fill_n(message.gradients(table), keys.size() * static_cast<size_t>(schema.dims[t]),
                    gradient);
      }
    }));
    for (const auto& table : tables) table->CountPost();
  }

  // Lets the applying thread apply what is posted.
  void Apply() const { engine->applying().Apply(update, Numbers(), Collecting()); }
  void Train(const std::vector<int64_t>& keys, float gradient = -1.0f) const {
    Post(keys, gradient);
    Apply();
  }
  Status Wait() const {
    for (const auto& table : tables) {
      TFHYBRID_RETURN_IF_ERROR(engine->WaitForVersion(*table, table->posted));
    }
    return Status::Ok();
  }

  StepNumbers Numbers() const { return {std::vector<float>(tables.size(), 1.0f)}; }
  std::function<Result<std::vector<GradientMessage>>()> Collecting() const {
    return [update = update] { return update->host_update->Collect(); };
  }

  // The first number of each key's row.
  std::vector<float> Firsts(size_t table, const std::vector<int64_t>& keys) const {
    const auto dim = static_cast<size_t>(tables[table]->reader->dim());
    std::vector<float> rows(dim * keys.size()), firsts;
    EXPECT_OK(tables[table]->reader->Lookup(keys, rows.data()));
    for (size_t i = 0; i < rows.size(); i += dim) firsts.push_back(rows[i]);
    return firsts;
  }

  std::shared_ptr<Engine> engine;
  OpenTables tables;
  UpdateInUse update;
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TESTS_NATIVE_ENGINE_ENGINE_JOB_H_
