#include "lockstep/tensor/tensor_call.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <atomic>

#include "lockstep/base/log.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/tensor/cuda_streams.h"

namespace lockstep {
namespace {

using Buffers = std::list<TensorBuffer>;

std::atomic<TakeOver> taker = nullptr;

// Defined here because every program that uses tensors with a group links this file.
[[maybe_unused]] const bool are_streams_offered = offer_cuda_streams();

// all_reduce on group "world", rank 0 of 2:
std::string prefix_of(const char* verb, const ProcessGroup& group) {
  return str(verb, " on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size(), ": ");
}

// The work of a call: copies results back into tensors that are not contiguous, and holds the tensors.
class TensorWork : public WorkState {
 public:
  TensorWork(Work work, const char* verb, const ProcessGroup& group, std::shared_ptr<Buffers> buffers)
      : work_(std::move(work)), buffers_(std::move(buffers)) {
    for (const TensorBuffer& buffer : *buffers_) has_copies_ |= buffer.is_result && buffer.is_copy();
    if (has_copies_) prefix_ = prefix_of(verb, group);
  }
  TensorWork(const TensorWork&) = delete;
  TensorWork& operator=(const TensorWork&) = delete;
  ~TensorWork() override {
    if (has_copies_ && work_.exception() == nullptr) {
      log(LogLevel::WARNING, prefix_ +
                                 "a Work was dropped before anybody waited for it; its tensor is not "
                                 "contiguous, so the result was not copied back into it");
    }
  }

  void wait(std::optional<std::chrono::nanoseconds> timeout) override {
    if (timeout) {
      work_.wait(*timeout);
    } else {
      work_.wait();
    }
    copy_back();
  }
  bool poll() override {
    if (!work_.is_completed()) return false;
    if (work_.exception() == nullptr) copy_back();
    return true;
  }
  std::exception_ptr exception() const override { return work_.exception(); }
  int source_rank() const override { return work_.source_rank(); }

  std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> tensors;
    for (const TensorBuffer& buffer : *buffers_) {
      if (buffer.is_result) tensors.push_back(buffer.original);
    }
    return tensors;
  }

  // Called once the operation is over.
  void copy_back() {
    if (!std::exchange(has_copies_, false)) return;
    const c10::NoGradGuard no_grad;
    for (const TensorBuffer& buffer : *buffers_) {
      if (buffer.is_result && buffer.is_copy()) buffer.original.copy_(buffer.copy);
    }
  }

 private:
  Work work_;
  std::shared_ptr<Buffers> buffers_;
  bool has_copies_ = false;
  std::string prefix_;  // of the warning; empty if there are no copies
};

}  // namespace

std::vector<at::Tensor> result(const Work& work) {
  const auto* tensor_work = dynamic_cast<const TensorWork*>(work.state().get());
  return tensor_work != nullptr ? tensor_work->results() : std::vector<at::Tensor>();
}

void set_take_over(TakeOver take_over) { taker.store(take_over); }

std::shared_ptr<void> TensorCall::keep() const {
  const TakeOver take_over = taker.load(std::memory_order_relaxed);
  if (take_over == nullptr) return buffers_;
  return {static_cast<void*>(buffers_.get()),
          [take_over, buffers = buffers_](void*) mutable { take_over(std::move(buffers)); }};
}

std::optional<DType> carried_dtype(at::ScalarType type) {
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
    default: return std::nullopt;
  }
}

TensorCall::TensorCall(const char* verb, const ProcessGroup& group)
    : verb_(verb), group_(group), buffers_(std::make_shared<Buffers>()) {}

std::string TensorCall::prefix() const { return prefix_of(verb_, group_); }

const ProcessGroup& TensorCall::group() {
  if (group_.device() == device_) return group_;
  return on_device_.emplace(group_.on(device_));
}

bool TensorCall::is_member() const { return comm::takes_part(verb_, group_); }

void TensorCall::check_device(const at::Tensor& tensor) {
  const at::Device device = tensor.device();
  if (!device.is_cpu() && !device.is_cuda())
    refuse("only tensors on CPU and CUDA are supported, this one is on ", device.str());
  const DeviceType type = device.is_cuda() ? DeviceType::CUDA : DeviceType::CPU;
  if (!buffers_->empty() && type != device_)
    refuse("all tensors must be on one device; one is on ", device.str(), ", another on ",
           buffers_->front().original.device().str());
  device_ = type;
  if (type == DeviceType::CPU) return;
  const int own = group_.backend().device_index();
  if (!group_.backend().serves(type))
    refuse("the tensor is on ", device.str(), ", and backend \"", group_.backend_name(),
           "\" serves CPU tensors only; use init_process_group(\"nccl\"), or copy the tensor to the CPU");
  if (device.index() != own)
    refuse("the tensor is on ", device.str(), ", and this rank's device in the group is cuda:", own,
           "; a rank has one device");
}

const TensorBuffer& TensorCall::add(const at::Tensor& tensor, bool is_result) {
  if (!tensor.defined()) refuse("the tensor is undefined");
  if (tensor.layout() != at::kStrided) {
    refuse("only dense tensors are supported, this one is ", tensor.layout(),
           " (all_reduce also takes sparse COO with SUM)");
  }
  check_device(tensor);
  const auto dtype = carried_dtype(tensor.scalar_type());
  if (!dtype) refuse("tensors of dtype ", c10::toString(tensor.scalar_type()), " are not carried");
  if (is_result && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse("elements of the tensor overlap in memory (sizes ", tensor.sizes(), ", strides ", tensor.strides(),
           "); pass a clone()");
  }
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    // No detached alias is made, because that would take most of the time of a small call.
    buffers_->push_back({tensor, {}, *dtype, is_result, tensor.storage()});
    return buffers_->back();
  }
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  // Another dense layout (channels-last, transposed) could travel unchanged only if all ranks had the same
  // strides. Nobody checks that, so every layout but the default goes through a copy.
  const at::Tensor memory = plain.is_contiguous() ? plain : plain.contiguous();
  buffers_->push_back({tensor.detach(), memory, *dtype, is_result});
  return buffers_->back();
}

const TensorBuffer& TensorCall::read(const at::Tensor& tensor) { return add(tensor, /*is_result=*/false); }
const TensorBuffer& TensorCall::write(const at::Tensor& tensor) { return add(tensor, /*is_result=*/true); }

void TensorCall::expect_dtype(const TensorBuffer& buffer, DType dtype, const char* which) const {
  if (buffer.dtype == dtype) return;
  refuse("all tensors must have the same dtype; ", which, " is ", name_of(buffer.dtype), ", another is ",
         name_of(dtype));
}

void TensorCall::expect_one_per_rank(const char* name, std::size_t length) const {
  if (length != static_cast<std::size_t>(group_.size()))
    refuse(name, " must have one tensor per rank: ", group_.size(), ", not ", length);
}

void TensorCall::expect_whole(const TensorBuffer& whole, const char* name, const TensorBuffer& part) const {
  expect_dtype(whole, part.dtype, name);
  if (whole.count() == part.count() * static_cast<std::size_t>(group_.size())) return;
  refuse("the ", name, " tensor must have ", group_.size(), " x ", part.count(),
         " elements, one part per rank; it has ", whole.count(), " (sizes ", whole.original.sizes(), ")");
}

std::vector<std::span<const std::byte>> TensorCall::read_all(const std::vector<at::Tensor>& tensors,
                                                             DType dtype) {
  std::vector<std::span<const std::byte>> bytes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorBuffer& buffer = read(tensors[i]);
    expect_dtype(buffer, dtype, str("input ", i).c_str());
    bytes.emplace_back(buffer.bytes());
  }
  return bytes;
}

std::vector<std::span<std::byte>> TensorCall::write_all(const std::vector<at::Tensor>& tensors, DType dtype) {
  std::vector<std::span<std::byte>> bytes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorBuffer& buffer = write(tensors[i]);
    expect_dtype(buffer, dtype, str("output ", i).c_str());
    bytes.push_back(buffer.bytes());
  }
  return bytes;
}

TensorBuffer TensorCall::write_flat(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    const TensorBuffer& buffer = write(tensor);
    expect_dtype(buffer, buffers_->front().dtype, "one");
    count += tensor.numel();
  }
  const at::Tensor flat = at::empty({count}, tensors[0].options().layout(at::kStrided).requires_grad(false));
  std::int64_t at = 0;
  for (TensorBuffer& buffer : *buffers_) {
    const at::Tensor part = flat.narrow(0, at, buffer.memory().numel()).view(buffer.memory().sizes());
    part.copy_(buffer.memory().detach());
    at += part.numel();
    buffer.original = buffer.original.detach();
    buffer.copy = part;
  }
  return {flat, {}, buffers_->front().dtype, true};
}

DType TensorCall::dtype_of_first(const std::vector<at::Tensor>& tensors) {
  TensorCall first(verb_, group_);
  return first.read(tensors.at(0)).dtype;
}

Work TensorCall::finish(Work work, bool async_op) {
  const auto wrapped = std::make_shared<TensorWork>(std::move(work), verb_, group_, std::move(buffers_));
  if (!async_op) wrapped->copy_back();
  return Work(wrapped);
}

}  // namespace lockstep
