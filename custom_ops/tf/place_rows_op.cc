// TfhybridPlaceRows: the host's part of a lookup that gathers rows on a device.
#include <algorithm>
#include <memory>
#include <vector>

#include "core/engine/device_lookup.h"
#include "core/util/phase_times.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/bridge.h"
#include "tf/op_kernels.h"

namespace tfhybrid {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TfhybridPlaceRows")
    .Input("proxies: T * resource")
    .Input("keys: N * int64")
    .Input("held: int64")
    .Output("slots: N * int32")
    .Output("sizes: int32")
    .Output("changed: T * int32")
    .Output("rows: T * float")
    .Output("number: int64")
    .Attr("engine: int")
    .Attr("tables: list(string)")
    .Attr("dims: list(int)")
    .Attr("table_of: list(int)")
    .Attr("outside: bool = false")
    .Attr("N: int >= 1")
    .Attr("T: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* context) {
      std::vector<int64_t> dims;
      int features = 0;
      TF_RETURN_IF_ERROR(context->GetAttr("dims", &dims));
      TF_RETURN_IF_ERROR(context->GetAttr("N", &features));
      const auto tables = static_cast<int>(dims.size());
      if (context->num_outputs() != features + 2 + 2 * tables) {
        return absl::InvalidArgumentError("dims has one entry per table");
      }
      for (int i = 0; i < features; ++i) context->set_output(i, context->input(tables + i));
      context->set_output(features, context->Vector(tables));
      for (int t = 0; t < tables; ++t) {
        const auto count = context->UnknownDim();
        context->set_output(features + 1 + t, context->Vector(count));
        context->set_output(features + 1 + tables + t,
                            context->Matrix(count, dims[static_cast<size_t>(t)]));
      }
      context->set_output(features + 1 + 2 * tables, context->Scalar());
      return absl::OkStatus();
    })
    .Doc(R"doc(
Reads rows as TfhybridLookup does, and selects those to copy into a variable on a device.

proxies: Of each table: the handle of its proxy variable. It orders this op against updates.
keys: One tensor of any shape per feature.
held: The last `number` whose rows were written into the variables; 0 at first.
slots: The slot of each key: its row in the variable of its table.
sizes: For each table: the size of the new variable to make before writing, or 0 to keep it.
changed: For each table: the slots to write before the gather.
rows: The rows to write there.
number: Identifies these rows. Pass it as `held` to the next lookup once they are written.
tables: Their names, T.
dims: Their dims.
table_of: The table of each feature, 0 to T - 1.
outside: Of training, where a key without a row reads what its table says.
)doc");

class PlaceRowsOp : public NamedTablesKernel {
 public:
  explicit PlaceRowsOp(OpKernelConstruction* context) : NamedTablesKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("table_of", &table_of_));
    OP_REQUIRES_OK(context, context->GetAttr("outside", &outside_));
    int features = 0;
    OP_REQUIRES_OK(context, context->GetAttr("N", &features));
    const auto tables = static_cast<int64_t>(names().size());
    const bool fits = table_of_.size() == static_cast<size_t>(features) &&
                      std::all_of(table_of_.begin(), table_of_.end(),
                                  [&](int64_t table) { return table >= 0 && table < tables; });
    OP_REQUIRES(context, fits,
                absl::InvalidArgumentError("table_of names a table, 0 to T - 1, of each feature"));
  }

 private:
  Status Fetch(OpKernelContext* context, TablesInUse* in_use) override {
    const PhaseTimer timer(Phase::kFetch);
    TFHYBRID_ASSIGN_OR_RETURN(in_use->on_device, Plan(context, *in_use));
    return in_use->on_device->Fetch(ThreadsOf(context));
  }

  Status Run(OpKernelContext* context, const TablesInUse& in_use) override {
    const PhaseTimer timer(Phase::kLookup);
    std::shared_ptr<DeviceLookup> lookup = in_use.on_device;
    if (lookup == nullptr) {
      TFHYBRID_ASSIGN_OR_RETURN(lookup, Plan(context, in_use));
    }
    TFHYBRID_RETURN_IF_ERROR(lookup->Read(ThreadsOf(context)));
    return FromTensorFlow(Write(context, *lookup));
  }

  Result<std::shared_ptr<DeviceLookup>> Plan(OpKernelContext* context,
                                             const TablesInUse& in_use) const {
    OpInputList keys;
    TFHYBRID_RETURN_IF_ERROR(FromTensorFlow(context->input_list("keys", &keys)));
    TFHYBRID_ASSIGN_OR_RETURN(const Tensor* held, InputOf(context, "held"));
    if (held->NumElements() != 1) {
      return Status::Error(StatusCode::kInvalidArgument,
                           "held is a number. Received: ", held->shape().DebugString());
    }
    std::vector<DeviceLookup::Feature> features;
    features.reserve(static_cast<size_t>(keys.size()));
    for (int i = 0; i < keys.size(); ++i) {
      features.push_back(
          {Int64sOf(keys[i]), static_cast<size_t>(table_of_[static_cast<size_t>(i)])});
    }
    return DeviceLookup::Plan(in_use.engine.get(), in_use.tables, features,
                              held->flat<int64_t>()(0), outside_);
  }

  absl::Status Write(OpKernelContext* context, const DeviceLookup& lookup) const {
    OpInputList keys;
    OpOutputList slots, changed, rows;
    TF_RETURN_IF_ERROR(context->input_list("keys", &keys));
    TF_RETURN_IF_ERROR(context->output_list("slots", &slots));
    TF_RETURN_IF_ERROR(context->output_list("changed", &changed));
    TF_RETURN_IF_ERROR(context->output_list("rows", &rows));
    for (int i = 0; i < keys.size(); ++i) {
      Tensor* of_feature = nullptr;
      TF_RETURN_IF_ERROR(slots.allocate(i, keys[i].shape(), &of_feature));
      const std::vector<int32_t>& found = lookup.slots(static_cast<size_t>(i));
      std::copy(found.begin(), found.end(), of_feature->flat<int32_t>().data());
    }
    const auto tables = static_cast<int>(dims().size());
    Tensor *sizes = nullptr, *number = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output("sizes", TensorShape({tables}), &sizes));
    TF_RETURN_IF_ERROR(context->allocate_output("number", TensorShape({}), &number));
    number->scalar<int64_t>()() = lookup.number();
    for (int t = 0; t < tables; ++t) {
      const auto table = static_cast<size_t>(t);
      const int64_t count = lookup.changed(table);
      Tensor *its_slots = nullptr, *its_rows = nullptr;
      TF_RETURN_IF_ERROR(changed.allocate(t, TensorShape({count}), &its_slots));
      TF_RETURN_IF_ERROR(rows.allocate(t, TensorShape({count, dims()[table]}), &its_rows));
      lookup.CopyChanged(table, its_slots->flat<int32_t>().data(), its_rows->flat<float>().data());
      sizes->flat<int32_t>()(t) = static_cast<int32_t>(lookup.size(table));
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> table_of_;
  bool outside_ = false;
};

REGISTER_KERNEL_BUILDER(Name("TfhybridPlaceRows").Device(tensorflow::DEVICE_CPU), PlaceRowsOp);

}  // namespace
}  // namespace tfhybrid
