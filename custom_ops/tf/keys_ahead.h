// KeysAhead: batches whose keys are numbered, and their rows found, before they are looked up.
//
//   data set          TfhybridNumberAhead    a thread of tf.data
//      │                │ Put(): drops the oldest of more than `batches`
//      │                ▼
//      │              [ batch n + 1 ] [ batch n + 2 ]
//      ▼                ▼ Take(): the one with these very keys
//   model step n + 1  TfhybridLookup
//
// Numbers depend on nothing but the keys, which are compared; rows are worthless once they have
// moved (RowNumbers). So a lookup that takes a batch from here reads what it would read without it.
// The first lookup of a collection says how keys are numbered: until then nothing is done ahead.
//
// Owned by the kernels of both ops. Thread-safe.
#ifndef TFHYBRID_TF_KEYS_AHEAD_H_
#define TFHYBRID_TF_KEYS_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/store/store.h"
#include "core/util/mutex.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf/key_numbers.h"

namespace tfhybrid {

class KeysAhead {
 public:
  // Those of a collection of this process; 0 is none, and returns null.
  static std::shared_ptr<KeysAhead> Of(int64_t collection);

  // Numbers the keys of each feature of a batch, as the last lookup did.
  Status Put(tensorflow::OpKernelContext* context, const tensorflow::OpInputList& keys,
             int64_t batches);
  // The numbers of a lookup's keys, or null. `tables`: of each feature.
  std::shared_ptr<const NumberedKeys> Take(const tensorflow::OpInputList& keys,
                                           const OpenTables& tables,
                                           const std::shared_ptr<KeyNumbers>& numbers);

 private:
  // How a collection looks up. It keeps no table open.
  struct Lookup {
    std::shared_ptr<KeyNumbers> numbers;
    std::vector<std::weak_ptr<OpenTable>> tables;  // of each feature
  };
  struct Batch {
    std::vector<tensorflow::Tensor> keys;  // of each feature
    std::vector<std::weak_ptr<OpenTable>> tables;
    std::shared_ptr<const NumberedKeys> numbered;
  };

  static bool AreSame(const std::vector<std::weak_ptr<OpenTable>>& known, const OpenTables& tables);
  static bool HasKeys(const Batch& batch, const tensorflow::OpInputList& keys);

  Mutex mutex_;
  Lookup lookup_ TFHYBRID_GUARDED_BY(mutex_);
  std::deque<Batch> batches_ TFHYBRID_GUARDED_BY(mutex_);
  bool used_ TFHYBRID_GUARDED_BY(mutex_) = false;  // batches have been put
};

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_KEYS_AHEAD_H_
