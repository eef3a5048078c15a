#include "lockstep/tensor/collectives.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives.h"

namespace lockstep {
namespace {

// A tensor as the collectives below want it: contiguous memory. `memory` is the tensor itself where it is contiguous.
struct Contiguous {
  at::Tensor original;
  at::Tensor memory;
  DType dtype;

  void* data() const { return memory.data_ptr(); }
  std::size_t count() const { return static_cast<std::size_t>(memory.numel()); }
  bool is_copy() const { return !memory.is_same(original); }
};

// Outside autograd and with inference tensors allowed, as torch's collectives are.
Contiguous contiguous(const char* verb, const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument(str(verb, ": the tensor is undefined"));
  if (tensor.layout() != at::kStrided) {
    throw InvalidArgument(
        lockstep::str(verb, ": only dense tensors are supported, this one is ", tensor.layout()));
  }
  if (!tensor.device().is_cpu()) {
    throw InvalidArgument(
        lockstep::str(verb, ": only CPU tensors are supported, this one is on ", tensor.device().str()));
  }
  const DType dtype = dtype_of(tensor.scalar_type());
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  // Any dense layout (channels-last, transposed) may travel as it lies in memory only if all ranks have the same strides,
  // which nobody checks; so everything but the default layout goes through a copy.
  const at::Tensor memory = plain.is_contiguous() ? plain : plain.contiguous();
  const bool same_memory = memory.data_ptr() == tensor.data_ptr() && tensor.is_contiguous();
  return {same_memory ? memory : tensor.detach(), memory, dtype};
}

// The same for a tensor that receives a result.
Contiguous writable(const char* verb, const at::Tensor& tensor) {
  Contiguous result = contiguous(verb, tensor);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw InvalidArgument(lockstep::str(verb, ": elements of the tensor overlap in memory (sizes ",
                                        tensor.sizes(), ", strides ", tensor.strides(), "); pass a clone()"));
  }
  return result;
}

// Copies the result back into a tensor that was not contiguous, when the work is waited for.
class CopyBack : public WorkState {
 public:
  CopyBack(Work work, std::function<void()> copy) : work_(std::move(work)), copy_(std::move(copy)) {}

  void wait(std::optional<std::chrono::nanoseconds> timeout) override {
    if (timeout) {
      work_.wait(*timeout);
    } else {
      work_.wait();
    }
    if (auto copy = std::exchange(copy_, nullptr)) copy();
  }
  bool poll() override {
    if (!work_.is_completed()) return false;
    if (work_.exception() == nullptr) {
      if (auto copy = std::exchange(copy_, nullptr)) copy();
    }
    return true;
  }
  std::exception_ptr exception() const override { return work_.exception(); }
  int source_rank() const override { return work_.source_rank(); }

 private:
  Work work_;
  std::function<void()> copy_;
};

std::shared_ptr<void> keep(const at::Tensor& tensor) { return std::make_shared<at::Tensor>(tensor); }

Work finish(Work work, const Contiguous& tensor, bool async_op) {
  if (tensor.is_copy()) {
    work = Work(std::make_shared<CopyBack>(std::move(work), [tensor] {
      const c10::NoGradGuard no_grad;
      tensor.original.copy_(tensor.memory);
    }));
  }
  if (!async_op) work.wait();
  return work;
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::FLOAT64;
    case at::kFloat: return DType::FLOAT32;
    case at::kHalf: return DType::FLOAT16;
    case at::kBFloat16: return DType::BFLOAT16;
    case at::kChar: return DType::INT8;
    case at::kByte: return DType::UINT8;
    case at::kShort: return DType::INT16;
    case at::kUInt16: return DType::UINT16;
    case at::kInt: return DType::INT32;
    case at::kUInt32: return DType::UINT32;
    case at::kLong: return DType::INT64;
    case at::kUInt64: return DType::UINT64;
    case at::kBool: return DType::BOOL;
    case at::kComplexFloat: return DType::COMPLEX64;
    case at::kComplexDouble: return DType::COMPLEX128;
    default: throw InvalidArgument(str("collectives do not carry tensors of dtype ", c10::toString(type)));
  }
}

Work all_reduce(const at::Tensor& tensor, ReduceOp op, const ProcessGroup& group, bool async_op) {
  const Contiguous t = writable("all_reduce", tensor);
  return finish(comm::all_reduce(group, t.data(), t.count(), t.dtype, op, true, keep(t.memory)), t, async_op);
}

Work broadcast(const at::Tensor& tensor, int root, const ProcessGroup& group, bool async_op) {
  const Contiguous t = writable("broadcast", tensor);
  return finish(comm::broadcast(group, t.data(), t.count(), t.dtype, root, true, keep(t.memory)), t,
                async_op);
}

Work all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& tensor, const ProcessGroup& group,
                bool async_op) {
  const Contiguous input = contiguous("all_gather", tensor);
  auto targets = std::make_shared<std::vector<Contiguous>>();
  std::vector<std::span<std::byte>> bytes;
  bool copies = false;
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    const Contiguous output = writable("all_gather", outputs[r]);
    if (output.dtype != input.dtype) {
      throw InvalidArgument(str("all_gather: output ", r, " is ", name_of(output.dtype), ", the input is ",
                                name_of(input.dtype)));
    }
    bytes.emplace_back(static_cast<std::byte*>(output.data()), output.count() * size_of(output.dtype));
    copies = copies || output.is_copy();
    targets->push_back(output);
  }
  auto buffers = std::make_shared<std::pair<at::Tensor, std::shared_ptr<std::vector<Contiguous>>>>(
      input.memory, targets);
  Work work =
      comm::all_gather(group, input.data(), input.count(), input.dtype, std::move(bytes), true, buffers);
  if (copies) {
    work = Work(std::make_shared<CopyBack>(std::move(work), [targets] {
      const c10::NoGradGuard no_grad;
      for (const Contiguous& target : *targets) {
        if (target.is_copy()) target.original.copy_(target.memory);
      }
    }));
  }
  if (!async_op) work.wait();
  return work;
}

Work barrier(const ProcessGroup& group, bool async_op) { return comm::barrier(group, async_op); }

Work isend(const at::Tensor& tensor, int destination, const ProcessGroup& group, int tag) {
  const Contiguous t = contiguous("isend", tensor);
  return comm::isend(group, t.data(), t.count(), t.dtype, destination, tag, keep(t.memory));
}

Work irecv(const at::Tensor& tensor, int source, const ProcessGroup& group, int tag) {
  const Contiguous t = writable("irecv", tensor);
  return finish(comm::irecv(group, t.data(), t.count(), t.dtype, source, tag, keep(t.memory)), t, true);
}

void send(const at::Tensor& tensor, int destination, const ProcessGroup& group, int tag) {
  isend(tensor, destination, group, tag).wait();
}

int recv(const at::Tensor& tensor, int source, const ProcessGroup& group, int tag) {
  Work work = irecv(tensor, source, group, tag);
  work.wait();
  return work.source_rank();
}

at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype, const ProcessGroup& group) {
  std::size_t bytes = c10::elementSize(dtype);
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes)) {
      throw InvalidArgument(lockstep::str("shared_empty: sizes ", sizes, " are negative or too large"));
    }
  }
  std::shared_ptr<void> memory = group.allocate_shared(bytes);
  return at::from_blob(
      memory.get(), sizes, [memory](void*) {}, at::TensorOptions(dtype));
}

}  // namespace lockstep
