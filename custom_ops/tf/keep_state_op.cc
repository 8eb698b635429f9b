// TfhybridKeepState: stores a rank's own half of a step before the step's gradients go to the
// leader.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/types.h"
#include "tf/bridge.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("TfhybridKeepState")
    .Input("proxies: N * resource")
    .Input("step: int64")
    .Input("state: types")
    .Attr("engine: int")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("types: list(type) >= 1")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); })
    .Doc(R"doc(
Keeps the state of this rank after a step, for a job that is started again.

To be run after the dense variables have the step's values and before the gradients of the tables
are posted. So when a table has an update, every rank of every host keeps the state that goes with
it. It waits for the updates that this rank has taken part in: until then the state before the last
may still be wanted, and so may the last messages in the leader's mailbox.

Does nothing where no state is kept.

proxies: One resource per table of the update, the handle of its proxy variable.
step: The step after which this is the state.
state: What is kept, behind the note of tfhybrid_kept_note().
)doc");

class KeepStateOp : public NamedTablesKernel {
 public:
  using NamedTablesKernel::NamedTablesKernel;

 private:
  Status Run(OpKernelContext* context, const TablesInUse& in_use) override {
    const Store& store = in_use.engine->store();
    const std::shared_ptr<KeptState> kept = store.kept();
    if (kept == nullptr) return Status::Ok();
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* step, InputOf(context, "step"));
    OpInputList state;
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("state", &state)));
    int64_t bytes = kept->note_bytes();
    for (int i = 0; i < state.size(); ++i) {
      if (!tensorflow::DataTypeCanUseMemcpy(state[i].dtype())) {
        return Status::Error(StatusCode::kInvalidArgument, "A state of type ",
                             tensorflow::DataTypeString(state[i].dtype()), " cannot be kept");
      }
      bytes += static_cast<int64_t>(state[i].TotalBytes());
    }
    if (bytes != kept->bytes()) {
      return Status::Error(StatusCode::kInvalidArgument, "A state of ", kept->bytes(),
                           " bytes is kept. Received: ", bytes);
    }
    uint8_t* to = kept->Write().data();
    for (int i = 0; i < state.size(); ++i) {
      const std::string_view from = state[i].tensor_data();
      std::memcpy(to, from.data(), from.size());
      to += from.size();
    }
    kept->Publish(static_cast<uint64_t>(step->scalar<int64_t>()()),
                  store.TablesDigest(in_use.tables));
    return Status::Ok();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhybridKeepState").Device(tensorflow::DEVICE_CPU), KeepStateOp);

}  // namespace
}  // namespace tfhybrid
