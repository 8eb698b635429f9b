// TfhybridUpdate: the end of a step for the tables: the leader applies the messages of all ranks,
// once.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/sync/gradient_message.h"
#include "core/sync/table_update.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"

namespace tfhybrid {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("TfhybridUpdate")
    .Input("proxies: N * resource")
    .Input("messages: int64")
    .Input("learning_rates: float")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("hosts: list(int)")
    .Attr("reduction: {'frequency', 'sum', 'mean'} = 'frequency'")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) {
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Updates the tables with the gradients of all ranks, on the leader; elsewhere notes that it will.

For each key the ranks' gradients are summed, by local rank within a host and then by host, and
divided as `reduction` says; the table's optimizer is applied once; the table's version grows by 1.

proxies: One resource per table, the handle of its proxy variable: later lookups come after.
messages: The messages of all ranks, laid end to end in the order of ranks.
learning_rates: [N], one per table.
hosts: The host of each rank; ranks of a host follow each other.
reduction: 'frequency' divides by the number of ranks in which a key occurred, 'mean' by the number
  of ranks, 'sum' by nothing.
)doc");

class UpdateOp : public tensorflow::OpKernel {
 public:
  explicit UpdateOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tables", &schema_.tables));
    OP_REQUIRES_OK(context, context->GetAttr("dims", &schema_.dims));
    std::vector<int64_t> hosts;
    OP_REQUIRES_OK(context, context->GetAttr("hosts", &hosts));
    ranks_ = static_cast<int64_t>(hosts.size());
    OP_REQUIRES(context, ranks_ > 0 && schema_.tables.size() == schema_.dims.size(),
                tensorflow::errors::InvalidArgument("hosts is not empty, and tables and dims have ",
                                                    "one entry per table"));
    std::string reduction_name;
    OP_REQUIRES_OK(context, context->GetAttr("reduction", &reduction_name));
    const Result<Reduction> reduction = ParseReduction(reduction_name);
    OP_REQUIRES_OK(context, ToTensorFlow(reduction.status()));
    update_ = std::make_unique<TableUpdate>(std::move(hosts), reduction.value());
    tables_.SetNames(schema_.tables);
  }

  void Compute(OpKernelContext* context) override {
    const Tensor* messages = nullptr;
    const Tensor* learning_rates = nullptr;
    OP_REQUIRES_OK(context, context->input("messages", &messages));
    OP_REQUIRES_OK(context, context->input("learning_rates", &learning_rates));
    OP_REQUIRES(context, learning_rates->NumElements() == static_cast<int64_t>(schema_.dims.size()),
                tensorflow::errors::InvalidArgument("learning_rates has one entry per table"));
    OP_REQUIRES_OK(context, ToTensorFlow(Run(context, *messages, *learning_rates)));
  }

 private:
  Status Run(OpKernelContext* context, const Tensor& messages, const Tensor& learning_rates) {
    TFHYBRID_ASSIGN_OR_RETURN(const OpenTables tables, tables_.Get(schema_.dims));
    if (tables.front()->writer != nullptr) {
      const std::lock_guard<std::mutex> guard(mutex_);
      TFHYBRID_RETURN_IF_ERROR(Lead(context, messages, learning_rates, tables));
    }
    for (const auto& table : tables) ++table->posted;
    return Status::Ok();
  }

  Status Lead(OpKernelContext* context, const Tensor& messages, const Tensor& learning_rates,
              const OpenTables& tables) {
    std::vector<TableWriter*> writers;
    std::vector<std::unique_lock<std::mutex>> locks;
    // In one order for all ops, so that two that share tables cannot wait for each other.
    OpenTables in_order = tables;
    std::sort(in_order.begin(), in_order.end());
    for (const auto& table : in_order) locks.emplace_back(table->writing);
    for (const auto& table : tables) writers.push_back(table->writer.get());
    const Status applied = Apply(context, messages, learning_rates, writers);
    if (!applied.ok()) {
      for (TableWriter* writer : writers) writer->PublishFailure(applied.message());
    }
    return applied;
  }

  Status Apply(OpKernelContext* context, const Tensor& messages, const Tensor& learning_rates,
               const std::vector<TableWriter*>& writers) {
    const auto* words = reinterpret_cast<const int64_t*>(messages.flat<tensorflow::int64>().data());
    TFHYBRID_ASSIGN_OR_RETURN(
        const std::vector<GradientMessage> parsed,
        ParseMessages(schema_, Span<const int64_t>(words, messages.NumElements()), ranks_));
    const Span<const float> rates(learning_rates.flat<float>().data(),
                                  learning_rates.NumElements());
    return update_->Run(parsed, rates, writers, ThreadsOf(context));
  }

  MessageSchema schema_;
  int64_t ranks_ = 0;
  NamedTables tables_;
  std::mutex mutex_;
  std::unique_ptr<TableUpdate> update_;  // guarded by mutex_
};

REGISTER_KERNEL_BUILDER(Name("TfhybridUpdate").Device(tensorflow::DEVICE_CPU), UpdateOp);

}  // namespace
}  // namespace tfhybrid
