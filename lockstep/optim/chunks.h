// Cuts tensors into chunks that threads share, in the form that the step kernels take. All optimisers go
// through memory this way.
//
//   std::vector<KernelCall> calls;
//   if (auto call = kernel_call(param, grad, {buffer})) calls.push_back(*call);  // else: tensor operations
//   for_chunks(calls, [&](const Chunk& chunk) {
//     kernels.sgd(chunk.dtype, c[chunk.call], chunk.buffers, chunk.count);
//   });
//
// Parts    If a call's gradient is in parts, the work sees its chunk in pieces, each with the average as its
//          gradient.
// Threads  at::get_num_threads(), or one when there is little to do. The beginning of a chunk depends on the
//          tensors alone. So sums made per chunk and added in order have the same bits with any number of
//          threads.
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

// Number of elements of a chunk. The last chunk of a call may have fewer.
inline constexpr std::size_t CHUNK_ELEMENTS = std::size_t{1} << 16U;

// All elements of one parameter.
struct KernelCall {
  DType dtype = DType::FLOAT32;
  StepBuffers buffers = {};
  std::size_t count = 0;
  std::vector<const std::byte*> parts = {};  // their average is the gradient, in place of buffers.grad
};

struct Chunk {
  std::size_t call;   // index of the KernelCall
  std::size_t index;  // among all chunks, less than chunk_count(calls)
  std::size_t begin;  // element of the call
  DType dtype;
  StepBuffers buffers;
  std::size_t count;
};

// Returns nothing unless they are dense CPU tensors of one floating-point dtype whose elements lie in the
// same order. From now on the parameter counts as written to. So autograd notices if it was saved for a
// backward that is still to come.
std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state);
// If there are parts, they take the place of `grad`.
std::optional<KernelCall> kernel_call(const at::Tensor& param, const at::Tensor& grad,
                                      std::initializer_list<at::Tensor> state, const GradientParts* parts);
// The average of the parts as a tensor like the parameter.
at::Tensor average_of(const GradientParts& parts, const at::Tensor& param);
// For a tensor that is only read.
std::optional<KernelCall> kernel_call(const at::Tensor& grad);

std::size_t chunk_count(std::span<const KernelCall> calls);
void for_chunks(std::span<const KernelCall> calls, const std::function<void(const Chunk&)>& work);

// Returns a tensor of the dtype for its arithmetic: float32 for float16 and bfloat16. Otherwise the tensor
// itself.
at::Tensor widened(const at::Tensor& tensor);

// Returns complex numbers as pairs of real ones; another tensor itself.
at::Tensor real_view(const at::Tensor& tensor);

}  // namespace lockstep::optim
