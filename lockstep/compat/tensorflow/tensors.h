// Tensors and statuses of TensorFlow as C++ values, element types in our numbers, and errors of ours as
// TensorFlow's.
//
//   const Tensor result = output_in_place_of(context, 0);     // input 0's memory, or a copy of it
//   check(lockstep_all_reduce(group, result.data(), result.count(), dtype, LOCKSTEP_SUM, nullptr));
//
// Throws      Failure, which fail() puts into the context of a kernel. TensorFlow raises it in Python:
//             InvalidArgumentError      the caller's mistake
//             FailedPreconditionError   ranks made different calls; or there is no job
//             UnavailableError          a rank died or left
//             DeadlineExceededError     no progress within the timeout
//             AbortedError              the group was aborted or closed
//             InternalError             anything else
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/compat/tensorflow/c_api.h"

namespace lockstep::compat::tensorflow {

struct Failure {
  Code code = INTERNAL;
  std::string text;
};

// Throws the failure of the last call of the C interface on this thread, unless `code` is LOCKSTEP_OK.
void check(int code);
void fail(TF_OpKernelContext* context, const Failure& failure);
void fail(TF_OpKernelConstruction* context, const Failure& failure);

// A status that throws what TensorFlow put into it.
class Status {
 public:
  TF_Status* get() const { return status_.get(); }
  void check() const;

 private:
  struct Freed {
    void operator()(TF_Status* status) const { api().TF_DeleteStatus(status); }
  };
  std::unique_ptr<TF_Status, Freed> status_{api().TF_NewStatus()};
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TF_Tensor* owned) : tensor_(owned) {}

  TF_Tensor* get() const { return tensor_.get(); }
  void* data() const { return api().TF_TensorData(get()); }
  std::size_t count() const { return static_cast<std::size_t>(api().TF_TensorElementCount(get())); }
  std::size_t bytes() const { return api().TF_TensorByteSize(get()); }
  DataType type() const { return api().TF_TensorType(get()); }
  std::vector<std::int64_t> shape() const;
  explicit operator bool() const { return tensor_ != nullptr; }

 private:
  struct Freed {
    void operator()(TF_Tensor* tensor) const { api().TF_DeleteTensor(tensor); }
  };
  std::unique_ptr<TF_Tensor, Freed> tensor_;
};

Tensor input_of(TF_OpKernelContext* context, int index);
Tensor new_output(TF_OpKernelContext* context, int index, DataType type,
                  const std::vector<std::int64_t>& shape);
// Output `index`: the memory of input `index` if nobody else reads that, else a copy of it. The caller holds
// no Tensor of that input, because it would count as a reader.
Tensor output_in_place_of(TF_OpKernelContext* context, int index);

std::size_t element_size(DataType type);
int dtype_of(DataType type);  // enum lockstep_dtype
// The types of which there are collectives, as an attribute's list: "float, double, ...".
extern const char* const TYPE_NAMES;

constexpr DataType INT64 = 9;

// For the attributes of a node.
std::int64_t int_of(TF_OpKernelConstruction* context, const char* name);
std::string text_of(TF_OpKernelConstruction* context, const char* name);

}  // namespace lockstep::compat::tensorflow
