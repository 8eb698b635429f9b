// TableWriter: the optimizer that a table has, and its state.
#include <unistd.h>

#include "core/store/segment.h"
#include "core/store/table_writer.h"
#include "core/util/fault_point.h"

namespace tfhybrid {

Status TableWriter::SetOptimizer(const OptimizerConfig& config) {
  if (optimizer_.kind != OptimizerKind::kNone) {
    if (optimizer_ == config) return Status::Ok();
    return Status::Error(StatusCode::kFailedPrecondition, "Table '", name(),
                         "' already has an optimizer, with other settings");
  }
  TFHYBRID_RETURN_IF_ERROR(ValidateOptimizer(config));
  if ((config.flags & kEveryRow) != 0 && policy().kind != PolicyKind::kNone) {
    return Status::Error(
        StatusCode::kInvalidArgument, "Table '", name(),
        "': every row is updated only where rows are neither admitted nor evicted");
  }
  if (in_files()) TFHYBRID_RETURN_IF_ERROR(CheckFileOptimizer(config));
  // What was made ahead has no room for state.
  DropAhead();
  DropTier();
  optimizer_ = config;
  state_floats_ = tfhybrid::StateFloats(config, dim_);
  try {
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      const Status added = AddState(static_cast<int64_t>(chunk), &chunks_[chunk]);
      TFHYBRID_FAULT_POINT();
      if (!added.ok()) {
        DropState();
        return added;
      }
    }
  } catch (...) {  // no memory
    DropState();
    throw;
  }
  for (int64_t row = 0; row < rows(); ++row) InitializeState(optimizer_, dim(), Row(row).state);
  table()->optimizer = config;
  table()->optimizer.kind = OptimizerKind::kNone;
  table()->optimizer_start = version();
  TFHYBRID_FAULT_POINT();
  // Last: a table that says which optimizer it has, has its numbers and its state.
  StoreRelease(&table()->optimizer.kind, config.kind);
  return Status::Ok();
}

void TableWriter::ForgetOptimizer() {
  if (optimizer_.kind == OptimizerKind::kNone) return;
  DropAhead();        // has room for state
  cursors_.Forget();  // the state of every row changes
  // First: state without an optimizer is damage, unless the table says this.
  StoreRelease(&table()->optimizer_start, kReplaced);
  TFHYBRID_FAULT_POINT();
  StoreRelease(&table()->optimizer.kind, OptimizerKind::kNone);
  TFHYBRID_FAULT_POINT();
  DropState();
}

void TableWriter::DropState() {
  DropTier();
  optimizer_ = OptimizerConfig();
  state_floats_ = 0;
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    chunks_[chunk].state = MappedFile();
    chunks_[chunk].states = nullptr;
    unlink(paths_.State(static_cast<int64_t>(chunk)).c_str());
    TFHYBRID_FAULT_POINT();
  }
}

}  // namespace tfhybrid
