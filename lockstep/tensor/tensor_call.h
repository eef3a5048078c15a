// TensorCall: one call of a verb on tensors. It turns tensors of any strides into memory that the verbs of
// comm/ take, and copies results back. Used by the verbs of this room.
//
//   TensorCall call("all_reduce", group);
//   if (!call.is_member()) return {};
//   const TensorBuffer& x = call.write(tensor);                       // contiguous: the tensor's own memory
//   return call.finish(comm::all_reduce(group, x.data(), x.count(), x.dtype, op, async_op, call.keep()),
//                      async_op);
//
// Fails  InvalidArgument that names verb, group and rank, before anything is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

// A tensor of a call, and the contiguous memory that travels: the tensor's own, or a copy of it.
struct TensorBuffer {
  at::Tensor original;
  at::Tensor copy;  // undefined if the tensor is its own memory
  DType dtype;
  bool is_result;
  // set if the tensor is its own memory: keeps the memory even if the program replaces the tensor's storage
  at::Storage storage = {};

  const at::Tensor& memory() const { return is_copy() ? copy : original; }
  void* data() const { return memory().data_ptr(); }
  std::size_t count() const { return static_cast<std::size_t>(memory().numel()); }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data()), count() * size_of(dtype)}; }
  bool is_copy() const { return copy.defined(); }
};

class TensorCall {
 public:
  TensorCall(const char* verb, const ProcessGroup& group);

  // The group for the device of the tensors, which must all be on one device.
  const ProcessGroup& group();

  // Returns false in a process outside the group, which does nothing. It logs a warning once per verb, as
  // torch does.
  bool is_member() const;

  // Outside autograd, and with inference tensors allowed, as in torch's collectives. The results live as long
  // as the call.
  const TensorBuffer& read(const at::Tensor& tensor);
  const TensorBuffer& write(const at::Tensor& tensor);  // the tensor receives a result
  // The bytes of each tensor, in order. All must have `dtype`.
  std::vector<std::span<const std::byte>> read_all(const std::vector<at::Tensor>& tensors, DType dtype);
  std::vector<std::span<std::byte>> write_all(const std::vector<at::Tensor>& tensors, DType dtype);
  // One buffer with the elements of all tensors (at least one, all of one dtype). Each tensor receives its
  // part of the result.
  TensorBuffer write_flat(const std::vector<at::Tensor>& tensors);
  DType dtype_of_first(const std::vector<at::Tensor>& tensors);
  // Throws unless there is one tensor per rank; or one part of `part`'s size per rank.
  void expect_one_per_rank(const char* name, std::size_t length) const;
  void expect_whole(const TensorBuffer& whole, const char* name, const TensorBuffer& part) const;
  void expect_dtype(const TensorBuffer& buffer, DType dtype, const char* which) const;

  // Holds the tensors until the work is done.
  std::shared_ptr<void> keep() const;
  // Copies results back: at once, or for a started Work of comm/, when the program waits for it. The last use
  // of a call, which gives its tensors away.
  Work finish(Work work, bool async_op);

  template <typename... Parts> [[noreturn]] void refuse(const Parts&... reason) const {
    throw InvalidArgument(lockstep::str(prefix(), reason...));
  }

 private:
  std::string prefix() const;
  const TensorBuffer& add(const at::Tensor& tensor, bool is_result);
  void check_device(const at::Tensor& tensor);

  const char* verb_;
  const ProcessGroup& group_;
  std::shared_ptr<std::list<TensorBuffer>> buffers_;
  DeviceType device_ = DeviceType::CPU;    // of the tensors
  std::optional<ProcessGroup> on_device_;  // the group for it, if `group_` is for another
};

// Cuts `whole` into one equal part per rank.
template <typename Bytes> std::vector<Bytes> equal_parts(Bytes whole, int ranks) {
  std::vector<Bytes> parts;
  const std::size_t size = whole.size() / static_cast<std::size_t>(ranks);
  for (int r = 0; r < ranks; ++r) parts.push_back(whole.subspan(static_cast<std::size_t>(r) * size, size));
  return parts;
}

// The tensors of this rank into which the operation of `work` writes, in the order of its arguments, as
// torch's Work.result(). Look at them after wait(). Empty if the operation writes nothing here (send,
// barrier, gather on other ranks than the root).
std::vector<at::Tensor> result(const Work& work);

// Takes over the tensors of finished operations. The core lets go of them while it holds a lock of the group.
// In a Python process the end of a tensor may wait for the interpreter's lock, whose holder may wait for the
// group. So there they are dropped later (compat/c10d). To be set before the first call; null: no one does.
using TakeOver = void (*)(std::shared_ptr<void> tensors);
void set_take_over(TakeOver take_over);

// The element type of collectives; nullopt if they do not support it.
std::optional<DType> carried_dtype(at::ScalarType type);

}  // namespace lockstep
