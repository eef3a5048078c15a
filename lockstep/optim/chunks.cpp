#include "lockstep/optim/chunks.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <vector>

namespace lockstep::optim {
namespace {

constexpr std::size_t CHUNK = std::size_t{1} << 16U;  // elements
constexpr std::int64_t LEAST_PER_THREAD =
    std::int64_t{1} << 15U;  // elements, below which another thread costs more than it gives

std::optional<DType> kernel_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return DType::FLOAT64;
    case at::kFloat: return DType::FLOAT32;
    case at::kHalf: return DType::FLOAT16;
    case at::kBFloat16: return DType::BFLOAT16;
    default: return std::nullopt;
  }
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense();
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return is_plain(b) && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

std::byte* advanced(const void* data, std::size_t bytes) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(const_cast<void*>(data)) + bytes;
}

Chunk chunk_of(const KernelCall& call, std::size_t begin) {
  const std::size_t bytes = begin * size_of(call.dtype);
  Chunk chunk = {0, 0, call.dtype, {}, std::min(CHUNK, call.count - begin)};
  chunk.buffers.param = advanced(call.buffers.param, bytes);
  chunk.buffers.grad = advanced(call.buffers.grad, bytes);
  for (std::size_t i = 0; i < std::size(call.buffers.state); ++i)
    chunk.buffers.state[i] = advanced(call.buffers.state[i], bytes);
  return chunk;
}

}  // namespace

std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state) {
  const auto dtype = kernel_dtype(param.scalar_type());
  if (!dtype || !is_plain(param) || !alike(param, grad)) return std::nullopt;
  if (!std::all_of(state.begin(), state.end(), [&](const at::Tensor& s) { return alike(param, s); }))
    return std::nullopt;
  KernelCall call = {*dtype, {}, static_cast<std::size_t>(param.numel())};
  call.buffers.param = param.mutable_data_ptr();
  call.buffers.grad = grad.const_data_ptr();
  std::size_t i = 0;
  for (const at::Tensor& s : state) call.buffers.state[i++] = s.mutable_data_ptr();
  param.unsafeGetTensorImpl()->bump_version();
  return call;
}

std::optional<KernelCall> kernel_call(const at::Tensor& grad) {
  const auto dtype = kernel_dtype(grad.scalar_type());
  if (!dtype || !is_plain(grad)) return std::nullopt;
  KernelCall call = {*dtype, {}, static_cast<std::size_t>(grad.numel())};
  call.buffers.grad = grad.const_data_ptr();
  return call;
}

std::size_t chunk_count(std::span<const KernelCall> calls) {
  std::size_t chunks = 0;
  for (const KernelCall& call : calls) chunks += (call.count + CHUNK - 1) / CHUNK;
  return chunks;
}

void for_chunks(std::span<const KernelCall> calls, const std::function<void(const Chunk&)>& work) {
  std::vector<Chunk> chunks;
  std::vector<std::int64_t> starts;  // of each chunk among all elements
  std::int64_t total = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t begin = 0; begin < calls[i].count; begin += CHUNK) {
      chunks.push_back(chunk_of(calls[i], begin));
      chunks.back().call = i;
      chunks.back().index = chunks.size() - 1;
      starts.push_back(total);
      total += static_cast<std::int64_t>(chunks.back().count);
    }
  }
  at::parallel_for(0, total, LEAST_PER_THREAD, [&](std::int64_t begin, std::int64_t end) {
    const auto first = std::lower_bound(starts.begin(), starts.end(), begin) - starts.begin();
    for (auto i = static_cast<std::size_t>(first); i < chunks.size() && starts[i] < end; ++i) work(chunks[i]);
  });
}

at::Tensor widened(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.resolve_conj() : tensor) : tensor;
}

}  // namespace lockstep::optim
