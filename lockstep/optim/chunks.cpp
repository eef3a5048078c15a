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
constexpr std::size_t SCRATCH_BYTES = std::size_t{16} << 10U;
constexpr std::size_t STRETCH =
    64;  // chunks that are read from a file while others are worked on: 16 MiB of float32
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

using Scratch = std::array<std::byte, SCRATCH_BYTES>;

// Averages elements [begin, begin + count) of the parts into `average`, in the call's dtype.
void average_parts(const KernelCall& call, std::size_t begin, std::size_t count, Scratch& average) {
  std::vector<const std::byte*> from;
  for (const std::byte* part : call.parts) from.push_back(part + begin * size_of(call.part_dtype));
  if (call.part_dtype == call.dtype) {
    const std::array<std::byte*, 1> to = {average.data()};
    return reduce(call.dtype, ReduceOp::AVG, from, to, count);
  }
  if (from.size() == 1) return widen(call.part_dtype, from[0], average.data(), count);
  alignas(64) std::array<std::byte, SCRATCH_BYTES / 2> narrow_average;  // is rounded, as all_reduce rounds it
  const std::array<std::byte*, 1> to = {narrow_average.data()};
  reduce(call.part_dtype, ReduceOp::AVG, from, to, count);
  widen(call.part_dtype, narrow_average.data(), average.data(), count);
}

// In pieces of which the scratch and what the work touches stay in the first cache.
template <typename Work> void work_in_pieces(const KernelCall& call, const Chunk& chunk, const Work& work) {
  alignas(64) Scratch average;
  const std::size_t most = SCRATCH_BYTES / size_of(call.dtype);
  for (std::size_t begin = 0; begin < chunk.count; begin += most) {
    Chunk piece = chunk;
    advance(piece.buffers, begin * size_of(call.dtype));
    piece.count = std::min(most, chunk.count - begin);
    const std::size_t first = chunk.begin + begin;  // element of the call
    if (!call.parts.empty()) {
      average_parts(call, first, piece.count, average);
      piece.buffers.grad = average.data();
    }
    work(piece);
    if (call.rounded.data != nullptr)
      narrow(call.rounded.dtype, static_cast<const std::byte*>(piece.buffers.param),
             call.rounded.data + first * size_of(call.rounded.dtype), piece.count);
  }
}

template <typename Work> void work_on(const KernelCall& call, const Chunk& chunk, const Work& work) {
  if (call.parts.empty() && call.rounded.data == nullptr) {
    work(chunk);
  } else {
    work_in_pieces(call, chunk, work);
  }
}

// What the stretch of chunks that begins with `first` reads and writes, but for gradients. Chunks of a call
// follow each other in memory.
std::vector<MemoryRange> memory_of(const std::vector<Chunk>& chunks, std::size_t first) {
  std::vector<MemoryRange> ranges;
  const std::size_t end = std::min(first + STRETCH, chunks.size());
  for (std::size_t begin = first, next = first; begin < end; begin = next) {
    std::size_t bytes = 0;
    for (next = begin; next < end && chunks[next].call == chunks[begin].call; ++next)
      bytes += chunks[next].count * size_of(chunks[next].dtype);
    const StepBuffers& buffers = chunks[begin].buffers;
    for (const void* data : {buffers.param, buffers.state[0], buffers.state[1], buffers.state[2]})
      if (data != nullptr) ranges.push_back({data, bytes});
  }
  return ranges;
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
  call->part_dtype = parts->dtype.value_or(call->dtype);
  call->rounded = parts->rounded;
  if (parts->of_rank.size() == 1 && call->part_dtype == call->dtype) {
    call->buffers.grad = parts->of_rank[0];
  } else {
    call->parts = parts->of_rank;
  }
  return call;
}

at::Tensor average_of(const GradientParts& parts, const at::Tensor& param) {
  const DType dtype = *kernel_dtype(param.scalar_type());
  const DType part_dtype = parts.dtype.value_or(dtype);
  const auto count = static_cast<std::size_t>(param.numel());
  at::Tensor average = at::empty_like(param);
  auto* const data = static_cast<std::byte*>(average.mutable_data_ptr());
  std::vector<std::byte> narrow_average(part_dtype == dtype ? 0 : count * size_of(part_dtype));
  const std::array<std::byte*, 1> to = {part_dtype == dtype ? data : narrow_average.data()};
  reduce(part_dtype, ReduceOp::AVG, parts.of_rank, to, count);
  if (part_dtype != dtype) widen(part_dtype, narrow_average.data(), data, count);
  return average;
}

void write_rounded(const GradientParts& parts, const at::Tensor& param) {
  if (parts.rounded.data == nullptr) return;
  narrow(parts.rounded.dtype, static_cast<const std::byte*>(param.const_data_ptr()), parts.rounded.data,
         static_cast<std::size_t>(param.numel()));
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

void for_chunks(std::span<const KernelCall> calls, const std::function<void(const Chunk&)>& work,
                FileMemory* file) {
  std::vector<Chunk> chunks;
  std::vector<std::int64_t> starts = {0};  // of each chunk among all elements, and their end
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t begin = 0; begin < calls[i].count; begin += CHUNK) {
      chunks.push_back(chunk_of(calls[i], begin));
      chunks.back().call = i;
      chunks.back().index = chunks.size() - 1;
      starts.push_back(starts.back() + static_cast<std::int64_t>(chunks.back().count));
    }
  }
  const auto run = [&](std::size_t from, std::size_t to) {
    at::parallel_for(starts[from], starts[to], LEAST_PER_THREAD, [&](std::int64_t begin, std::int64_t end) {
      const auto first = std::lower_bound(starts.begin(), starts.end(), begin) - starts.begin();
      for (auto i = static_cast<std::size_t>(first); i < to && starts[i] < end; ++i)
        work_on(calls[chunks[i].call], chunks[i], work);
    });
  };
  if (file == nullptr) return run(0, chunks.size());
  if (!chunks.empty()) file->will_need(memory_of(chunks, 0));
  for (std::size_t from = 0; from < chunks.size(); from += STRETCH) {
    if (from + STRETCH < chunks.size()) file->will_need(memory_of(chunks, from + STRETCH));
    run(from, std::min(from + STRETCH, chunks.size()));
    file->is_done(memory_of(chunks, from));
  }
}

at::Tensor widened(const at::Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.resolve_conj() : tensor) : tensor;
}

}  // namespace lockstep::optim
