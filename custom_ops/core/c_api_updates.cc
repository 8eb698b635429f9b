// The C interface of updates.
#include <memory>
#include <string>
#include <vector>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/engine/engine_registry.h"

namespace tfhybrid {
namespace {

StepNumbers NumbersOf(const OpenedUpdate& update, const float* learning_rates) {
  return {{learning_rates, learning_rates + update.tables.size()}, 0.0};  // no dense gradients
}

Contribution ContributionOf(const tfhybrid_contribution& from) {
  return {from.samples, from.skip != 0, from.event_time,
          from.failure == nullptr ? "" : from.failure};
}

// A rank's contribution, after the tables have everything that was posted before.
Result<std::vector<KeyGradients>> BatchOf(const Engine& engine, const OpenedUpdate& update,
                                          const tfhybrid_contribution& from) {
  std::vector<KeyGradients> batch;
  for (size_t t = 0; t < update.tables.size(); ++t) {
    const auto& table = update.tables[t];
    TFHYBRID_RETURN_IF_ERROR(engine.WaitForVersion(*table, table->posted));
    batch.push_back({{from.keys[t], from.counts[t]},
                     from.gradients[t],
                     RowLayout::Array(update.schema().dims[t])});
  }
  return batch;
}

// Like WithEngine, for a body that needs one of its updates.
template <typename Body>
int WithUpdate(int64_t engine, int64_t update, const Body& body) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const UpdateInUse opened, its->Update(update));
    return StatusOf(body, its, opened);
  });
}

// Like WithUpdate, for a leader of several: the body gets the applying thread, and runs on it after
// earlier work.
template <typename Body>
int WithExchange(int64_t engine, int64_t update, const Body& body) {
  return WithUpdate(engine, update, [&](Engine* its, const UpdateInUse& opened) -> Status {
    TFHYBRID_RETURN_IF_ERROR(opened->CheckExchanges());
    return its->applying().Run([&] { return StatusOf(body, &its->applying(), opened); });
  });
}

}  // namespace
}  // namespace tfhybrid

using tfhybrid::ApplyingThread, tfhybrid::BatchOf, tfhybrid::ContributionOf, tfhybrid::CopyOut,
    tfhybrid::Engine, tfhybrid::KeyGradients, tfhybrid::NumbersOf, tfhybrid::Span, tfhybrid::Status,
    tfhybrid::StatusCode, tfhybrid::UpdateInUse, tfhybrid::WithExchange, tfhybrid::WithUpdate;

int tfhybrid_update_open(int64_t engine, const tfhybrid_update_config* config, int64_t* update) {
  return tfhybrid::WithEngine(engine, [&](Engine* its) -> Status {
    if (config->tables < 1) {
      return Status::Error(StatusCode::kInvalidArgument, "An update is of one table or more");
    }
    return tfhybrid::WriteTo(
        update,
        its->OpenUpdate(config->name, {config->table_names, config->table_names + config->tables},
                        {config->exchange, config->reduction, config->wire_dtype, config->clipping,
                         config->clip_limit},
                        config->steps));
  });
}

int tfhybrid_update_steps(int64_t engine, int64_t update, int64_t* steps) {
  return WithUpdate(engine, update, [&](Engine*, const UpdateInUse& opened) -> Status {
    if (opened->sharded == nullptr) {
      return Status::Error(StatusCode::kFailedPrecondition, "The update '", opened->name,
                           "' has no sharded tables, or this process leads no host");
    }
    *steps = opened->sharded->steps;
    return Status::Ok();
  });
}

int tfhybrid_update_post(int64_t engine, int64_t update, const tfhybrid_contribution* contribution,
                         const float* learning_rates) {
  return WithUpdate(engine, update, [&](Engine* its, const UpdateInUse& opened) -> Status {
    if (opened->settings().exchange == tfhybrid::Exchange::kAllRanks) {
      return Status::Error(StatusCode::kFailedPrecondition,
                           "With exchange='all_ranks' gradients are packed, not posted");
    }
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<KeyGradients> batch,
                              BatchOf(*its, *opened, *contribution));
    return its->Post(opened, batch, ContributionOf(*contribution),
                     NumbersOf(*opened, learning_rates), its->threads());
  });
}

int tfhybrid_update_merge(int64_t engine, int64_t update, int64_t* words, int64_t room,
                          int64_t* size) {
  return WithExchange(engine, update, [&](ApplyingThread* applying, const UpdateInUse& opened) {
    applying->Merge(*opened);
    CopyOut(opened->exchange->Splits(), words, room, size);
  });
}

int tfhybrid_update_merge_owned(int64_t engine, int64_t update, const int64_t* messages,
                                int64_t words, int64_t* merged_words) {
  return WithExchange(engine, update, [&](ApplyingThread* applying, const UpdateInUse& opened) {
    opened->exchange->MergeOwned({messages, words}, applying->parallel_for());
    *merged_words = opened->exchange->Splits().front();
  });
}

int tfhybrid_update_merged(int64_t engine, int64_t update, int64_t* words, int64_t room,
                           int64_t* size) {
  return WithExchange(engine, update, [&](ApplyingThread* applying, const UpdateInUse& opened) {
    *size = 0;
    for (const int64_t split : opened->exchange->Splits()) *size += split;
    if (*size > room) {
      return Status::Error(StatusCode::kInvalidArgument, "What was merged has ", *size,
                           " words. Received: room for ", room);
    }
    opened->exchange->Fill({words, *size}, applying->parallel_for());
    return Status::Ok();
  });
}

int tfhybrid_update_stage(int64_t engine, int64_t update, const int64_t* messages, int64_t words,
                          int* vote, char* complaint, int64_t room, int64_t* size) {
  return WithExchange(engine, update, [&](ApplyingThread* applying, const UpdateInUse& opened) {
    const tfhybrid::HostExchange::Staged staged = applying->Stage(*opened, {messages, words});
    *vote = staged.vote ? 1 : 0;
    CopyOut(staged.complaint, complaint, room, size);
  });
}

int tfhybrid_update_commit(int64_t engine, int64_t update, const char* complaint,
                           const float* learning_rates) {
  return WithExchange(engine, update, [&](ApplyingThread* applying, const UpdateInUse& opened) {
    applying->Commit(opened, NumbersOf(*opened, learning_rates), complaint);
  });
}

int tfhybrid_update_pack(int64_t engine, int64_t update, const tfhybrid_contribution* contribution,
                         int64_t* words, int64_t room, int64_t* size) {
  return WithUpdate(engine, update, [&](Engine* its, const UpdateInUse& opened) -> Status {
    *size = 0;
    TFHYBRID_ASSIGN_OR_RETURN(const std::vector<KeyGradients> batch,
                              BatchOf(*its, *opened, *contribution));
    const Status packed = opened->host_update->Pack(
        batch, ContributionOf(*contribution),
        [&](int64_t wanted) -> tfhybrid::Result<Span<int64_t>> {
          *size = wanted;
          if (wanted <= room) return Span<int64_t>(words, wanted);
          return Status::Error(StatusCode::kInvalidArgument, "The message has ", wanted,
                               " words. Received: room for ", room);
        },
        its->threads());
    // If the buffer is too small nothing is packed, and the caller calls again.
    return *size > room ? Status::Ok() : packed;
  });
}

int tfhybrid_update_apply_gathered(int64_t engine, int64_t update, const int64_t* messages,
                                   int64_t words, const float* learning_rates) {
  return WithUpdate(engine, update, [&](Engine* its, const UpdateInUse& opened) {
    its->ApplyGathered(opened, NumbersOf(*opened, learning_rates),
                       [held = std::vector<int64_t>(messages, messages + words)] {
                         return Span<const int64_t>(held);
                       });
  });
}
