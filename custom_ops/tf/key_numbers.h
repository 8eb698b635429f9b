// The keys of a lookup by number: the distinct keys of each table, in order of first occurrence,
// and which of them each key is. A lookup finds the row of each distinct key once, and its gradient
// sums by number.
#ifndef TFHYBRID_TF_KEY_NUMBERS_H_
#define TFHYBRID_TF_KEY_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/compute/unique_keys.h"
#include "core/store/table_reader.h"
#include "core/util/mutex.h"
#include "core/util/span.h"
#include "core/util/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

// Outputs and attributes of an op that makes them. int32, since TensorFlow's control flow has few
// kernels for uint32: numbers are below 2^31, and either type may be read as the other.
#define TFHYBRID_KEY_NUMBERS         \
  Output("numbers: N * int32")       \
      .Output("distinct: T * int64") \
      .Attr("tables: list(string)")  \
      .Attr("N: int >= 1")           \
      .Attr("T: int >= 1")

namespace tfhybrid {

// What goes to an op's outputs. Immutable once made.
struct NumberedKeys {
  std::vector<tensorflow::Tensor> number_tensors;    // of each feature
  std::vector<tensorflow::Tensor> distinct_tensors;  // of each table
  // What lies in these.
  std::vector<const uint32_t*> numbers;       // of each feature's keys
  std::vector<Span<const int64_t>> distinct;  // of each table
  std::vector<int64_t> occurrences;           // of all of a table's keys
  std::vector<RowNumbers> rows;               // of each table, where they were found ahead

  // Whether so many keys of a table repeat that it pays to find each distinct one first.
  bool Repeats(size_t table) const { return distinct[table].size() * 8 < occurrences[table] * 7; }
};

// Of the tables that `tables` names, in order of first mention.
class KeyNumbers {
 public:
  // Reads the attributes.
  absl::Status Begin(tensorflow::OpKernelConstruction* context);
  // The table of each feature.
  const std::vector<size_t>& table_of() const { return table_of_; }
  size_t first_feature(size_t table) const { return static_cast<size_t>(features_[table].front()); }
  // Whether anything in the graph takes these outputs: a lookup without a gradient needs none.
  bool AreUsed(tensorflow::OpKernelContext* context) const;
  // Numbers the keys of each feature. Thread-safe; holds no lock while it waits for other threads.
  Result<NumberedKeys> Make(tensorflow::OpKernelContext* context,
                            const tensorflow::OpInputList& keys);
  // Sets the outputs, in the shapes of `keys`.
  void Set(tensorflow::OpKernelContext* context, const tensorflow::OpInputList& keys,
           const NumberedKeys& made) const;

 private:
  using Scratch = std::vector<UniqueKeys>;  // by table

  Scratch TakeScratch();

  std::vector<size_t> table_of_;
  std::vector<std::vector<int>> features_;  // of each table
  int first_output_ = 0;
  Mutex mutex_;
  std::vector<Scratch> idle_ TFHYBRID_GUARDED_BY(mutex_);
};

// Sets the shapes of these outputs, of which the first is number `output`; keys begin at `input`.
void ShapesOfNumbers(tensorflow::shape_inference::InferenceContext* context, int features,
                     int input, int output);

}  // namespace tfhybrid

#endif  // TFHYBRID_TF_KEY_NUMBERS_H_
