// The C interface of updates.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/engine/current_engine.h"

namespace tfhybrid {
namespace {

// An update, the engine that has it open, and its tables, held for the call.
struct UpdateInUse {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<HostUpdate> update;
  OpenTables tables;

  const MessageSchema& schema() const { return update->settings().schema; }
  StepNumbers Numbers(const float* learning_rates, double dense_squares) const {
    return {{learning_rates, learning_rates + tables.size()}, dense_squares};
  }
};

// As Guarded, for a body that wants the update of that number.
template <typename Body>
int WithUpdate(int64_t number, const Body& body) {
  return Guarded([&]() -> Status {
    UpdateInUse in_use;
    TFHYBRID_ASSIGN_OR_RETURN(in_use.engine, CurrentEngine());
    TFHYBRID_ASSIGN_OR_RETURN(in_use.update, in_use.engine->Update(static_cast<size_t>(number)));
    for (const std::string& name : in_use.schema().tables) {
      TFHYBRID_ASSIGN_OR_RETURN(std::shared_ptr<OpenTable> table, in_use.engine->Table(name));
      in_use.tables.push_back(std::move(table));
    }
    return body(in_use);
  });
}

// As WithUpdate, for a leader among several: the body runs on the applying thread, after what that
// was given before.
template <typename Body>
int WithExchange(int64_t number, const Body& body) {
  return WithUpdate(number, [&](const UpdateInUse& in_use) -> Status {
    std::packaged_task<Status(HostExchange*)> run(
        [&](HostExchange* exchange) { return body(in_use, exchange); });
    std::future<Status> done = run.get_future();
    TFHYBRID_RETURN_IF_ERROR(in_use.engine->SubmitExchange(
        *in_use.update, [&run](HostExchange* exchange) { run(exchange); }));
    return done.get();
  });
}

Result<MessageSchema> SchemaOf(const Engine& engine, const tfhybrid_update_config& config) {
  MessageSchema schema;
  if (config.tables < 1) {
    return Status::Error(StatusCode::kInvalidArgument, "An update is of one table or more");
  }
  for (int t = 0; t < config.tables; ++t) {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<OpenTable> table,
                              engine.Table(config.table_names[t]));
    schema.tables.push_back(table->reader->name());
    schema.dims.push_back(table->reader->dim());
  }
  return schema;
}

}  // namespace
}  // namespace tfhybrid

using tfhybrid::HostExchange;
using tfhybrid::Span;
using tfhybrid::Status;
using tfhybrid::UpdateInUse;

int tfhybrid_update_open(const tfhybrid_update_config* config, int64_t* update) {
  return tfhybrid::Guarded([&]() -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const std::shared_ptr<tfhybrid::Engine> engine,
                              tfhybrid::CurrentEngine());
    TFHYBRID_ASSIGN_OR_RETURN(tfhybrid::MessageSchema schema, tfhybrid::SchemaOf(*engine, *config));
    TFHYBRID_ASSIGN_OR_RETURN(
        const tfhybrid::UpdateSettings settings,
        tfhybrid::UpdateSettings::Make(std::move(schema),
                                       {config->hosts, config->hosts + config->ranks}, config->host,
                                       {config->exchange, config->reduction, config->wire_dtype,
                                        config->clipping, config->clip_limit}));
    if (settings.exchange == tfhybrid::Exchange::kAllRanks) {
      return Status::Error(tfhybrid::StatusCode::kInvalidArgument,
                           "exchange is 'leaders' or 'owner' here. Received: 'all_ranks'");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const size_t number, engine->OpenUpdate(config->name, settings));
    *update = static_cast<int64_t>(number);
    return Status::Ok();
  });
}

int tfhybrid_update_post(int64_t update, const tfhybrid_contribution* contribution,
                         const float* learning_rates, double dense_squares) {
  return tfhybrid::WithUpdate(update, [&](const UpdateInUse& in_use) -> Status {
    std::vector<tfhybrid::KeyGradients> batch;
    for (size_t t = 0; t < in_use.tables.size(); ++t) {
      const auto& table = in_use.tables[t];
      TFHYBRID_RETURN_IF_ERROR(in_use.engine->WaitForVersion(*table, table->posted));
      batch.push_back({{contribution->keys[t], contribution->counts[t]},
                       contribution->gradients[t],
                       tfhybrid::RowLayout::Array(in_use.schema().dims[t])});
    }
    const char* const failure = contribution->failure;
    return in_use.engine->Post(in_use.tables, in_use.update, batch,
                               {contribution->samples, contribution->skip != 0,
                                contribution->event_time, failure == nullptr ? "" : failure},
                               in_use.Numbers(learning_rates, dense_squares),
                               in_use.engine->threads());
  });
}

int tfhybrid_update_merge(int64_t update, int64_t* words, int64_t room, int64_t* size) {
  return tfhybrid::WithExchange(update, [&](const UpdateInUse& in_use, HostExchange* exchange) {
    in_use.engine->Merge(in_use.tables, exchange);
    tfhybrid::CopyOut(exchange->Splits(), words, room, size);
    return Status::Ok();
  });
}

int tfhybrid_update_merge_owned(int64_t update, const int64_t* shares, int64_t words,
                                int64_t* merged_words) {
  return tfhybrid::WithExchange(update, [&](const UpdateInUse& in_use, HostExchange* exchange) {
    exchange->MergeOwned({shares, words}, in_use.engine->threads());
    *merged_words = exchange->Splits().front();
    return Status::Ok();
  });
}

int tfhybrid_update_merged(int64_t update, int64_t* words, int64_t room, int64_t* size) {
  return tfhybrid::WithExchange(update, [&](const UpdateInUse& in_use, HostExchange* exchange) {
    *size = 0;
    for (const int64_t split : exchange->Splits()) *size += split;
    if (*size > room) {
      return Status::Error(tfhybrid::StatusCode::kInvalidArgument, "What was merged has ", *size,
                           " words. Received: room for ", room);
    }
    exchange->Fill({words, *size}, in_use.engine->threads());
    return Status::Ok();
  });
}

int tfhybrid_update_stage(int64_t update, const int64_t* messages, int64_t words, int* vote,
                          char* complaint, int64_t room, int64_t* size) {
  return tfhybrid::WithExchange(update, [&](const UpdateInUse& in_use, HostExchange* exchange) {
    const HostExchange::Staged staged =
        in_use.engine->Stage(in_use.tables, exchange, {messages, words});
    *vote = staged.vote ? 1 : 0;
    tfhybrid::CopyOut(staged.complaint, complaint, room, size);
    return Status::Ok();
  });
}

int tfhybrid_update_commit(int64_t update, const char* complaint, const float* learning_rates,
                           double dense_squares) {
  return tfhybrid::WithExchange(update, [&](const UpdateInUse& in_use, HostExchange*) {
    in_use.engine->Commit(in_use.tables, in_use.update,
                          in_use.Numbers(learning_rates, dense_squares), complaint);
    return Status::Ok();
  });
}
