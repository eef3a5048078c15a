// How the optimisers go through memory: tensors that the step kernels take, cut into chunks that threads
// share.
//
//   std::vector<KernelCall> calls;
//   if (auto call = kernel_call(param, grad, {buffer})) calls.push_back(*call);  // else: tensor operations
//   for_chunks(calls, [&](const Chunk& chunk) {
//     kernels.sgd(chunk.dtype, c[chunk.call], chunk.buffers, chunk.count);
//   });
//
// Parts    the work sees a chunk of a call with parts in pieces, each with the average as its gradient.
// Threads  as many as at::get_num_threads() says, one when there is little to do. Where a chunk begins
//          depends on the tensors alone: sums made per chunk and added in order have the same bits with any
//          number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/optim/gradient_parts.h"
#include "lockstep/optim/step_kernels.h"

namespace lockstep::optim {

// A chunk has as many, but for the last one of its call.
inline constexpr std::size_t CHUNK_ELEMENTS = std::size_t{1} << 16U;

// All elements of one parameter.
struct KernelCall {
  DType dtype = DType::FLOAT32;
  StepBuffers buffers = {};
  std::size_t count = 0;
  std::vector<const std::byte*> parts = {};  // whose average is the gradient, in place of buffers.grad
};

struct Chunk {
  std::size_t call;   // index of the KernelCall
  std::size_t index;  // among all chunks, less than chunk_count(calls)
  std::size_t begin;  // element of the call
  DType dtype;
  StepBuffers buffers;
  std::size_t count;
};

// Nothing unless they are dense CPU tensors of one floating-point dtype whose elements lie in the same order.
// The parameter counts as written to from now on: autograd notices if it was saved for a backward that is
// still to come.
std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state);
// Parts, where there are any, take the place of `grad`.
std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state, const GradientParts* parts);
// The average of the parts as a tensor like the parameter.
at::Tensor average_of(const GradientParts& parts, const at::Tensor& param);
// Of a tensor that is only read.
std::optional<KernelCall> kernel_call(const at::Tensor& grad);

std::size_t chunk_count(std::span<const KernelCall> calls);
void for_chunks(std::span<const KernelCall> calls, const std::function<void(const Chunk&)>& work);

// A tensor of the dtype in which its numbers are computed with: float32 for float16 and bfloat16. Else the
// tensor itself.
at::Tensor widened(const at::Tensor& tensor);

// Complex numbers as pairs of real ones; other tensors themselves.
at::Tensor real_view(const at::Tensor& tensor);

}  // namespace lockstep::optim
