// meta_init: makes a module without memory for its parameters, to be placed later: by ShardedDataParallel,
// where N ranks need one copy and not N, or whole by materialize().
//
//   auto net = dist::meta_init([&] { return models::GPT2(config); });
//   dist::ShardedDataParallel model(net);         // one parameter at a time is given its memory and values
//
//   dist::materialize(*net);                      // instead: all of it, in this process alone
//
// Values     are those of the construction without meta_init, bit for bit: parameters and buffers, whatever
//            fills them (torch::nn::init, copy_(), mul_(), views, NoGradGuard). The generator of random
//            numbers is where that construction would have left it, too. With ShardedDataParallel they are
//            rank 0's, as always.
// Memory     of a rank while N ranks of a machine construct and place a model of P bytes: P / N for its
//            share of the one copy, and the largest parameter with what it is computed from. Without memory
//            in common P takes the place of P / N.
// Time       random numbers are drawn twice: once in meta_init(), into memory that is freed at once, and once
//            where the parameter is placed, by rank 0 alone.
// Tied       parameters stay tied, and tensors that share memory share it afterwards.
// Small      tensors of at most 4 KiB are made at once, for they cost less than a note of them. So are
//            tensors from torch::tensor(values), up to 1 MiB. A constructor that needs the value of a large
//            one (item(), a branch on it) gets it: the tape is replayed for it.
// Use        of a tensor before it is placed throws c10::Error: "this tensor has no memory yet, ...".
// Fails      InvalidArgument, with the operator's name: a tensor of more than 1 MiB that was not made within
//            meta_init() is copied into the module (from_blob(), a file that was read); a tensor that is not
//            dense, or is moved to another device; an operator without shapes in libtorch (a custom one
//            without a meta kernel) writes to a parameter. Pointers to elements (data_ptr(), accessor())
//            throw c10::Error.
// Threads    the calling thread's tensors alone. Calls of meta_init() may be nested.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "lockstep/tensor/init_recorder.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

// Returns what `construct` returns: a module, its holder, a shared_ptr.
template <typename Construct> auto meta_init(Construct&& construct) {
  const InitRecorder recorder;
  return std::forward<Construct>(construct)();
}

// Gives each parameter and buffer that has no memory its memory and its first values. The tensors stay those
// that they are, for optimisers and members that hold them. Not collective.
void materialize(torch::nn::Module& module);
void materialize(const std::vector<at::Tensor>& tensors);

// Made by meta_init(), and without memory yet.
bool is_deferred(const at::Tensor& tensor);
// Copies the values of any tensor to `place`, contiguous and of the same shape and dtype. Those of a deferred
// one are computed there, and it stays deferred.
void copy_values(const at::Tensor& place, const at::Tensor& tensor);

}  // namespace lockstep
