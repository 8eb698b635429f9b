// LookupKernel: what the ops that read rows of this host's tables share. They number their keys, or
// take numbers that were made ahead, and find the row of each distinct key once.
#ifndef TFHYBRID_TF_LOOKUP_KERNEL_H_
#define TFHYBRID_TF_LOOKUP_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/store/table_reader.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/key_numbers.h"
#include "tf/keys_ahead.h"
#include "tf/op_kernels.h"

// Attributes of such an op, beside TFHYBRID_KEY_NUMBERS.
#define TFHYBRID_LOOKUP                                                        \
  Attr("engine: int")                                                          \
      .Attr("dims: list(int)")                                                 \
      .Attr("reading: {'training', 'outside', 'by_gradient'} = 'by_gradient'") \
      .Attr("collection: int = 0")

namespace tfhybrid {

// Probing and copying one row, in nanoseconds.
constexpr int64_t kLookupCostNs = 60;

class LookupKernel : public NamedTablesKernel {
 public:
  explicit LookupKernel(tensorflow::OpKernelConstruction* context);

 protected:
  // Of the tables that the op names.
  const KeyNumbers& numbers() const { return *numbers_; }
  // Whether this is outside of training, where keys without a row read what their table says.
  bool IsOutside(tensorflow::OpKernelContext* context) const;
  // The keys by number. Sets the outputs for them.
  Result<std::shared_ptr<const NumberedKeys>> Number(tensorflow::OpKernelContext* context,
                                                     const OpenTables& tables,
                                                     const tensorflow::OpInputList& keys);
  // The rows of the distinct keys of each table for which `wants` is true; none where the lookup
  // would find each row once anyway.
  Result<std::vector<FoundRows>> FindRows(tensorflow::OpKernelContext* context,
                                          const OpenTables& tables,
                                          const std::shared_ptr<const NumberedKeys>& numbered,
                                          const std::function<bool(size_t table)>& wants) const;

 private:
  uint64_t Staleness(tensorflow::OpKernelContext* context, const SplitBatches& batches) final;

  std::string reading_;
  // Shared with what numbers keys ahead, which may outlive this.
  const std::shared_ptr<KeyNumbers> numbers_ = std::make_shared<KeyNumbers>();
  std::shared_ptr<KeysAhead> ahead_;  // null: this lookup is of no collection
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_LOOKUP_KERNEL_H_
