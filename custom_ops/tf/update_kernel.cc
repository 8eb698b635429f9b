#include "tf/update_kernel.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "core/process_store.h"
#include "tf/background.h"
#include "tf/bridge.h"

namespace tfhybrid {
namespace {

// Leads one update. The tables are held, so that their mappings outlive it.
void LeadUpdate(const OpenTables& tables, HostUpdate* update, const std::vector<float>& rates,
                const std::function<Status()>& before) {
  Status status = before();
  Result<std::vector<GradientMessage>> messages =
      status.ok() ? update->Collect() : Result<std::vector<GradientMessage>>(status);
  std::vector<TableWriter*> writers;
  std::vector<std::unique_lock<std::mutex>> locks;
  // In one order for all updates, so that two that share tables cannot wait for each other.
  OpenTables in_order = tables;
  std::sort(in_order.begin(), in_order.end());
  for (const auto& table : in_order) locks.emplace_back(table->writing);
  for (const auto& table : tables) writers.push_back(table->writer.get());
  status = messages.status();
  if (status.ok()) status = update->Apply(messages.value(), rates, writers, HostThreads());
  if (status.ok()) return;
  for (TableWriter* writer : writers) writer->PublishFailure(status);
}

}  // namespace

UpdateKernel::UpdateKernel(tensorflow::OpKernelConstruction* context, bool mailbox_per_rank)
    : WaitingKernel(context) {
  std::string reduction;
  OP_REQUIRES_OK(context, context->GetAttr("update", &name_));
  OP_REQUIRES_OK(context, context->GetAttr("hosts", &settings_.hosts));
  OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction));
  OP_REQUIRES(context, !settings_.hosts.empty(),
              tensorflow::errors::InvalidArgument("hosts has one entry per rank"));
  const Result<Reduction> parsed = ParseReduction(reduction);
  OP_REQUIRES_OK(context, ToTensorFlow(parsed.status()));
  settings_.reduction = parsed.value();
  settings_.mailbox_per_rank = mailbox_per_rank;
  settings_.schema = {names(), dims()};
  // Two graphs of one optimizer may train different tables: their messages must not meet.
  name_ += "-" + std::to_string(static_cast<uint64_t>(settings_.schema.Signature()));
}

Result<std::shared_ptr<HostUpdate>> UpdateKernel::Named() const {
  const std::shared_ptr<Store> store = ProcessStore();
  if (store == nullptr) {
    return Status::Error(StatusCode::kFailedPrecondition, "The job has ended");
  }
  return HostUpdate::Named(store, name_, settings_);
}

Status UpdateKernel::Submit(tensorflow::OpKernelContext* context, const OpenTables& tables,
                            const std::shared_ptr<HostUpdate>& update,
                            std::function<Status()> before) const {
  const tensorflow::Tensor* learning_rates = nullptr;
  TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input("learning_rates", &learning_rates)));
  if (learning_rates->NumElements() != static_cast<int64_t>(tables.size())) {
    return Status::Error(StatusCode::kInvalidArgument, "learning_rates has one entry per table. ",
                         "Received: ", learning_rates->shape().DebugString());
  }
  for (const auto& table : tables) ++table->posted;
  if (tables.front()->writer == nullptr) return Status::Ok();
  const float* rates = learning_rates->flat<float>().data();
  ApplyingThread().Submit(
      [tables, update, rates = std::vector<float>(rates, rates + tables.size()),
       before = std::move(before)] { LeadUpdate(tables, update.get(), rates, before); });
  return Status::Ok();
}

}  // namespace tfhybrid
