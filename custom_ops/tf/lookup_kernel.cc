#include "tf/lookup_kernel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tf/bridge.h"

namespace tfhybrid {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

LookupKernel::LookupKernel(OpKernelConstruction* context) : NamedTablesKernel(context) {
  OP_REQUIRES_OK(context, context->GetAttr("reading", &reading_));
  OP_REQUIRES_OK(context, numbers_->Begin(context));
  int64_t collection = 0;
  OP_REQUIRES_OK(context, context->GetAttr("collection", &collection));
  ahead_ = KeysAhead::Of(collection);
}

uint64_t LookupKernel::Staleness(OpKernelContext* context, const SplitBatches& batches) {
  if (!batches.uses_key_handles()) return 0;
  OpInputList keys;
  TF_CHECK_OK(context->input_list("keys", &keys));
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Tensor& of_feature : keys) {
    if (of_feature.NumElements() == 0) continue;
    least = std::min(least, batches.received().StalenessOf(Int64sOf(of_feature)));
  }
  return least;
}

bool LookupKernel::IsOutside(OpKernelContext* context) const {
  return reading_ == "outside" || (reading_ == "by_gradient" && !numbers_->AreUsed(context));
}

Result<std::shared_ptr<const NumberedKeys>> LookupKernel::Number(OpKernelContext* context,
                                                                 const OpenTables& tables,
                                                                 const OpInputList& keys) {
  std::shared_ptr<const NumberedKeys> numbered;
  // Only what trains takes them: what is announced is the data of training.
  if (ahead_ != nullptr && numbers_->AreUsed(context)) {
    numbered = ahead_->Take(keys, tables, numbers_);
  }
  if (numbered == nullptr) {
    TFHYBRID_ASSIGN_OR_RETURN(NumberedKeys made, numbers_->Make(context, keys));
    numbered = std::make_shared<const NumberedKeys>(std::move(made));
  }
  numbers_->Set(context, keys, *numbered);
  return numbered;
}

Result<std::vector<FoundRows>> LookupKernel::FindRows(
    OpKernelContext* context, const OpenTables& tables,
    const std::shared_ptr<const NumberedKeys>& numbered,
    const std::function<bool(size_t table)>& wants) const {
  std::vector<FoundRows> rows(numbered->distinct.size());
  for (size_t table = 0; table < rows.size(); ++table) {
    const RowNumbers& ahead = numbered->rows[table];
    OpenTable& open = *tables[numbers_->first_feature(table)];
    const bool pays = numbered->Repeats(table) || !ahead.rows.empty() || open.known_rows != nullptr;
    if (!pays || !wants(table)) continue;
    const Span<const int64_t> distinct = numbered->distinct[table];
    TFHYBRID_ASSIGN_OR_RETURN(FoundRows found,
                              open.reader->Find(distinct, ThreadsOf(context), ahead));
    if (open.known_rows != nullptr && found.mapped != nullptr) {
      open.known_rows->Keep({numbered, distinct, std::move(found.numbers)});
    }
    rows[table] = std::move(found);
  }
  return rows;
}

}  // namespace tfhybrid
