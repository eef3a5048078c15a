#include "lockstep/optim/chunks.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t CHUNK = CHUNK_ELEMENTS;
constexpr std::size_t AVERAGED_BYTES = std::size_t{16} << 10U;  // stay in the first cache
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

void advance(StepBuffers& buffers, std::size_t bytes) {
  buffers.param = advanced(buffers.param, bytes);
  buffers.grad = advanced(buffers.grad, bytes);
  for (void*& state : buffers.state) state = advanced(state, bytes);
}

Chunk chunk_of(const KernelCall& call, std::size_t begin) {
  Chunk chunk = {0, 0, begin, call.dtype, call.buffers, std::min(CHUNK, call.count - begin)};
  advance(chunk.buffers, begin * size_of(call.dtype));
  return chunk;
}

// A piece of `chunk`, which begins at element `begin` of its call, with the average of the call's parts.
template <typename Work> void work_on_averages(const KernelCall& call, const Chunk& chunk, const Work& work) {
  alignas(64) std::array<std::byte, AVERAGED_BYTES> average;
  const std::array<std::byte*, 1> to = {average.data()};
  std::vector<const std::byte*> from(call.parts.size());
  const std::size_t most = AVERAGED_BYTES / size_of(call.dtype);
  for (std::size_t begin = 0; begin < chunk.count; begin += most) {
    Chunk piece = chunk;
    advance(piece.buffers, begin * size_of(call.dtype));
    piece.buffers.grad = average.data();
    piece.count = std::min(most, chunk.count - begin);
    for (std::size_t rank = 0; rank < from.size(); ++rank)
      from[rank] = call.parts[rank] + (chunk.begin + begin) * size_of(call.dtype);
    reduce(call.dtype, ReduceOp::AVG, from, to, piece.count);
    work(piece);
  }
}

// Without a gradient.
std::optional<KernelCall> call_of(const at::Tensor& param, std::initializer_list<at::Tensor> state) {
  const auto dtype = kernel_dtype(param.scalar_type());
  if (!dtype || !is_plain(param)) return std::nullopt;
  if (!std::all_of(state.begin(), state.end(), [&](const at::Tensor& s) { return alike(param, s); }))
    return std::nullopt;
  KernelCall call = {*dtype, {}, static_cast<std::size_t>(param.numel())};
  call.buffers.param = param.mutable_data_ptr();
  std::size_t i = 0;
  for (const at::Tensor& s : state) call.buffers.state[i++] = s.mutable_data_ptr();
  param.unsafeGetTensorImpl()->bump_version();
  return call;
}

}  // namespace

std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state) {
  if (!alike(param, grad)) return std::nullopt;
  auto call = call_of(param, state);
  if (call) call->buffers.grad = grad.const_data_ptr();
  return call;
}

std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state, const GradientParts* parts) {
  if (parts == nullptr) return kernel_call(param, grad, state);
  auto call = call_of(param, state);
  if (!call) return call;
  if (parts->of_rank.size() == 1) {
    call->buffers.grad = parts->of_rank[0];
  } else {
    call->parts = parts->of_rank;
  }
  return call;
}

at::Tensor average_of(const GradientParts& parts, const at::Tensor& param) {
  at::Tensor average = at::empty_like(param);
  const std::array<std::byte*, 1> to = {static_cast<std::byte*>(average.mutable_data_ptr())};
  reduce(*kernel_dtype(param.scalar_type()), ReduceOp::AVG, parts.of_rank, to,
         static_cast<std::size_t>(param.numel()));
  return average;
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
    for (auto i = static_cast<std::size_t>(first); i < chunks.size() && starts[i] < end; ++i) {
      const KernelCall& call = calls[chunks[i].call];
      if (call.parts.empty()) {
        work(chunks[i]);
      } else {
        work_on_averages(call, chunks[i], work);
      }
    }
  });
}

at::Tensor widened(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.resolve_conj() : tensor) : tensor;
}

}  // namespace lockstep::optim
