// Kernels of the stand-in for CUDA: every operator that libtorch has for the CPU, on aliases of device
// tensors where the memory is.
//
//   arguments   a device tensor becomes a CPU tensor of the same sizes and strides over memory_of() its
//               storage
//   results     an argument that was written is itself; a view of an argument's storage is one of the
//               device's; anything else is copied into new device memory
//   when        on the stream, later, if everything that is returned is an argument that was written; else,
//               or if one of these is empty and so may be given its size by the kernel, at once, behind it
//
// Registered one by one are operators that make memory, change sizes or cross devices.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda/stand_in.h"

namespace lockstep::cuda_stand_in {
namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet CPU{c10::DispatchKey::CPU};

// A strided tensor in `storage`, of another tensor's form.
at::Tensor in_storage(const at::Tensor& form, c10::Storage storage, c10::DispatchKey key) {
  auto tensor =
      c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), form.dtype());
  tensor->set_sizes_and_strides(form.sizes(), form.strides(), form.storage_offset());
  return at::Tensor(std::move(tensor));
}

// The tensors of one call, on both sides.
class Call {
 public:
  // What a kernel may work on, in place of an argument.
  c10::IValue to_memory(const c10::IValue& value) {
    if (value.isTensor()) return alias(value.toTensor());
    if (value.isDevice() && value.toDevice().is_cuda()) return c10::Device(c10::kCPU);
    if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(alias(tensor));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec())
        tensors.push_back(tensor ? std::optional(alias(*tensor)) : std::nullopt);
      return tensors;
    }
    return value;
  }

  // What the caller gets, in place of a result.
  c10::IValue to_device(const c10::IValue& value) const {
    if (value.isTensor()) return device_tensor(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(device_tensor(tensor));
    return tensors;
  }

  // Arguments that were empty and are not any more get the size and values that the kernel gave their
  // stand-ins.
  void take_new_sizes() const {
    for (const auto& [made, original] : empty_) {
      if (made.numel() == 0) continue;
      original.resize_(made.sizes());
      Call second;
      second.alias(original).copy_(made);
    }
  }

  c10::Device device() const { return device_; }
  bool has_empty() const { return !empty_.empty(); }

 private:
  at::Tensor alias(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    device_ = tensor.device();
    if (tensor.numel() == 0) {
      const at::Tensor made =
          at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
      originals_.emplace(made.unsafeGetTensorImpl(), tensor);
      empty_.emplace_back(made, tensor);
      return made;
    }
    const c10::Storage& storage = tensor.storage();
    c10::Storage& memory = memory_[storage.unsafeGetStorageImpl()];
    if (!memory) {
      memory = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                            c10::DataPtr(memory_of(storage.data()), c10::Device(c10::kCPU)));
      storages_.emplace(memory.unsafeGetStorageImpl(), storage);
    }
    const at::Tensor made = in_storage(tensor, memory, c10::DispatchKey::CPU);
    originals_.emplace(made.unsafeGetTensorImpl(), tensor);
    return made;
  }

  at::Tensor device_tensor(const at::Tensor& result) const {
    if (!result.defined()) return result;
    if (const auto same = originals_.find(result.unsafeGetTensorImpl()); same != originals_.end()) {
      return same->second;
    }
    const auto view = storages_.find(result.storage().unsafeGetStorageImpl());
    if (view != storages_.end()) return in_storage(result, view->second, c10::DispatchKey::CUDA);
    const at::Tensor copy =
        at::empty_strided(result.sizes(), result.strides(), result.options().device(device_));
    Call second;
    second.alias(copy).copy_(result);
    return copy;
  }

  c10::Device device_{c10::kCUDA, current_device()};
  std::map<c10::StorageImpl*, c10::Storage> memory_;    // of device storages
  std::map<c10::StorageImpl*, c10::Storage> storages_;  // the other way
  std::map<const c10::TensorImpl*, at::Tensor> originals_;
  std::vector<std::pair<at::Tensor, at::Tensor>> empty_;  // stand-ins and arguments
};

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Whether a kernel of this operator does nothing but write to what is there. (Random numbers come in the
// order of the calls.)
bool can_run_later(const c10::FunctionSchema& schema) {
  bool is_writing = false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.type()->str() == "Generator?") return false;
    is_writing = is_writing || writes(argument);
  }
  for (const c10::Argument& result : schema.returns()) is_writing = is_writing && writes(result);
  return is_writing;
}

void run(const c10::OperatorHandle& op, Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  op.redispatchBoxed(CPU, &stack);
}

void run_at_once(const c10::OperatorHandle& op, const Call& call, Stack& arguments, Stack* stack) {
  wait_for_current_stream();
  run(op, arguments);
  call.take_new_sizes();
  for (const c10::IValue& result : arguments) stack->push_back(call.to_device(result));
}

// What is returned is known: those of the arguments that are written and returned, by name of their alias.
void push_written(const c10::FunctionSchema& schema, const Stack& originals, Stack* stack) {
  for (const c10::Argument& result : schema.returns()) {
    for (std::size_t i = 0; i < originals.size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      if (writes(argument) && *argument.alias_info() == *result.alias_info()) stack->push_back(originals[i]);
    }
  }
}

void run_later(const c10::OperatorHandle& op, std::shared_ptr<Call> call, Stack arguments) {
  launch([op, call = std::move(call), arguments = std::move(arguments)]() mutable {
    try {
      run(op, arguments);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "stand-in for CUDA: a kernel failed: %s\n", error.what());
      std::abort();  // as an error of a device, after which it takes no calls
    }
  });
}

void call_kernel(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto call = std::make_shared<Call>();
  const Stack originals(stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size()), stack->end());
  stack->resize(stack->size() - originals.size());
  Stack arguments;
  for (const c10::IValue& value : originals) arguments.push_back(call->to_memory(value));
  const c10::DeviceGuard guard(call->device());
  if (!can_run_later(schema) || call->has_empty()) return run_at_once(op, *call, arguments, stack);
  push_written(schema, originals, stack);
  run_later(op, call, std::move(arguments));
}

// ---- operators that have kernels of their own

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(*device);
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    last += (sizes[i] - 1) * strides[i];
    is_empty = is_empty || sizes[i] == 0;
  }
  const auto meta = c10::scalarTypeToTypeMeta(dtype.value_or(c10::get_default_dtype_as_scalartype()));
  const std::size_t bytes = is_empty ? 0 : static_cast<std::size_t>(last + 1) * meta.itemsize();
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCUDA);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, true);
  auto tensor = c10::make_intrusive<c10::TensorImpl>(std::move(storage),
                                                     c10::DispatchKeySet(c10::DispatchKey::CUDA), meta);
  tensor->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(tensor));
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const at::Tensor meta = at::empty(sizes, at::TensorOptions(c10::kMeta), format);  // says the strides
  return empty_strided(sizes, meta.strides(), dtype, layout, device, pinned);
}

c10::OperatorHandle copy_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
}

// Within devices and to one: later. From the host its memory is read now, as it need not stay; to the host
// the stream is awaited.
at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool) {
  const c10::DeviceGuard guard(to.is_cuda() ? to.device() : from.device());
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto call = std::make_shared<Call>();
  Stack arguments{call->to_memory(to), call->to_memory(from.is_cuda() ? from : from.clone()), false};
  if (to.is_cuda()) {
    run_later(copy_operator(), call, std::move(arguments));
  } else {
    wait_for_current_stream();
    run(copy_operator(), arguments);
  }
  return to;
}

// Memory that is there is kept; more of it is new.
const at::Tensor& resize_(const at::Tensor& tensor, c10::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  const at::Tensor form = empty(sizes, tensor.scalar_type(), {}, tensor.device(), {}, format);
  const std::size_t needed = form.storage().nbytes() + tensor.storage_offset() * tensor.itemsize();
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (needed > tensor.storage().nbytes()) impl->set_storage_keep_dtype(form.storage());
  impl->set_sizes_and_strides(sizes, form.strides());
  return tensor;
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  c10::impl::getDeviceGuardImpl(c10::kCUDA)->recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&call_kernel>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace
}  // namespace lockstep::cuda_stand_in
