// UpdateAttributes: what all ops of an optimizer's updates are told when a graph is built.
#ifndef TFHYBRID_TF_UPDATE_ATTRIBUTES_H_
#define TFHYBRID_TF_UPDATE_ATTRIBUTES_H_

#include <memory>
#include <mutex>
#include <string>

#include "core/engine/engine.h"
#include "core/update/host_update.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"

// The attributes of REGISTER_OP that UpdateAttributes reads:
//   tables, dims  the tables, each once, and their dims
//   update        tells the updates of one optimizer from those of others; equal on all ranks
//   exchange      how gradients travel between hosts (core/update/update_settings.h)
//   hosts         the host of each rank; ranks of a host follow each other
//   host          the host of this rank
//   reduction     'frequency' divides a key's sum by the number of ranks in which it occurred,
//                 'mean' weighs ranks by their samples and divides by all samples, 'sum' by nothing
//   wire_dtype    what gradients are rounded to in messages between hosts
//   clipping      what of the reduced gradients is clipped to clip_limit
#define TFHYBRID_UPDATE_ATTRIBUTES                                \
  Attr("tables: list(string)")                                    \
      .Attr("dims: list(int)")                                    \
      .Attr("update: string")                                     \
      .Attr("exchange: {'leaders', 'owner', 'all_ranks'}")        \
      .Attr("hosts: list(int)")                                   \
      .Attr("host: int")                                          \
      .Attr("reduction: {'frequency', 'sum', 'mean'}")            \
      .Attr("wire_dtype: {'float32', 'bfloat16'}")                \
      .Attr("clipping: {'none', 'value', 'norm', 'global_norm'}") \
      .Attr("clip_limit: float")                                  \
      .Attr("N: int >= 1")

namespace tfhybrid {

struct UpdateAttributes {
  std::string name;
  UpdateSettings settings;

  tensorflow::Status Read(tensorflow::OpKernelConstruction* context);
  // Opened when an op first runs, and anew in another job, as NamedTables. Thread-safe.
  Result<std::shared_ptr<HostUpdate>> OpenIn(const std::shared_ptr<Engine>& engine);

 private:
  std::mutex mutex_;
  std::weak_ptr<Engine> engine_;      // guarded by mutex_; where update_ is from
  std::weak_ptr<HostUpdate> update_;  // guarded by mutex_
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_UPDATE_ATTRIBUTES_H_
