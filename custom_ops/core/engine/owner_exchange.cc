#include "core/engine/owner_exchange.h"

#include <numeric>
#include <utility>

namespace tfhybrid {

Result<std::shared_ptr<const FetchedRows>> OwnerExchange::Fetch(
    const std::vector<FeatureRead>& features, const ParallelFor& parallel_for) {
  const Meetings::Wait wait(meetings_);
  const FetchedRows::Sources sources = {links_, &passes_->rank(), &batches_->received(),
                                        tables_->check_alive()};
  auto fetched = FetchedRows::Fetch(features, tables_->topology().host, sources, parallel_for);
  if (fetched.ok()) batches_->CountLookup(*fetched.value());
  return fetched;
}

Result<ScannedRows> OwnerExchange::Scan(int64_t host, const AskedRows& rows) {
  TFHYBRID_RETURN_IF_ERROR(links_->CheckOther(host));
  const Meetings::Wait wait(meetings_);
  TFHYBRID_ASSIGN_OR_RETURN(const OwnerLinks::HeldLink held, links_->HoldReads(host));
  const std::vector<int64_t> asked = ScanWords(rows);
  TFHYBRID_RETURN_IF_ERROR(held.connection->Send(FrameKind::kScan, {asked}));
  TFHYBRID_ASSIGN_OR_RETURN(const Frame answer, held.connection->Receive());
  const Span<const int64_t> words = answer.payload.words();
  if (answer.kind == FrameKind::kFailure) return FailureFrom(words);
  const int64_t count = words.size() < 3 ? -1 : words[2];
  if (answer.kind != FrameKind::kRows || count < 0 || count > rows.count ||
      words.size() != 3 + count + WordsOfRows(count, rows.dim)) {
    return Status::Error(StatusCode::kDataLoss, held.connection->peer(), " was asked for ",
                         rows.count, " rows of table '", rows.table, "'. Received: ", words.size(),
                         " words");
  }
  const int64_t* const keys = words.data() + 3;
  const auto* const floats = reinterpret_cast<const float*>(keys + count);
  return ScannedRows{words[0], words[1], {keys, keys + count}, {floats, floats + count * rows.dim}};
}

Result<ShardedStep::Agreed> OwnerExchange::Agree(const UpdateInUse& update,
                                                 const StepNumbers* numbers) {
  const UpdateStep which = {update->schema().Signature(), ++update->sharded->steps};
  ShardedStep::Tables tables;
  tables.merge = [&](WordBuffer* words, std::vector<int64_t>* splits) -> Status {
    TFHYBRID_RETURN_IF_ERROR(applying_->Run([&] {
      applying_->Merge(*update);
      *splits = update->exchange->Splits();
      const int64_t total = std::accumulate(splits->begin(), splits->end(), int64_t{0});
      *words = WordBuffer::OfSize(total);
      update->exchange->Fill({words->data.get(), total}, applying_->parallel_for());
      return Status::Ok();
    }));
    // Before the parts go out: owners send nobody what is not used any longer.
    return passes_->ReleaseUsed();
  };
  tables.stage = [&](const std::vector<Span<const int64_t>>& messages,
                     HostExchange::Staged* staged) {
    return applying_->Run([&] {
      const BatchKeys* const held = tables_->topology().IsNode() ? &batches_->keys() : nullptr;
      *staged = applying_->Stage(*update, messages, held);
      return Status::Ok();
    });
  };
  tables.squares = [&] { return update->host_update->staged().squares(); };
  ShardedStep step(update->settings(), which, std::move(tables), links_, &service_.inbox(),
                   meetings_, tables_->check_alive());
  return numbers == nullptr ? step.Serve() : step.Run(*numbers);
}

bool OwnerExchange::Finish(const UpdateInUse& update, Result<ShardedStep::Agreed> agreed) {
  if (agreed.ok()) {
    applying_->Commit(update, std::move(agreed.value().numbers),
                      std::move(agreed.value().complaint));
    return true;
  }
  applying_->Fail(update, agreed.status());
  // Where the update was applied, ranks may wait for rows of this owner.
  passes_->RefuseAll(agreed.status());
  return false;
}

}  // namespace tfhybrid
