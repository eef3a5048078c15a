// Random numbers of a tensor-parallel group. What every rank holds whole (weights before they are cut,
// dropout between layers) must be drawn alike on all ranks; what each rank has a part of (dropout of the
// heads of an attention) must not.
//
//   namespace tp = dist::tensor_parallel;
//   tp::model_parallel_manual_seed(42, group);           // the same number on all ranks of the group
//   at::Tensor same = at::dropout(x, 0.1, true);         // equal on all ranks
//   {
//     const tp::ForkedRandom forked(group);
//     at::Tensor own = at::dropout(h, 0.1, true);        // different on each
//   }
//   at::Tensor same_again = at::dropout(x, 0.1, true);
//
// Fork        draws one number from the default generator, which is equal on all ranks, and mixes the
//             rank into it: the seed of the generator until the end of the scope. Then the generator goes
//             on behind the number, as on every other rank. So there is no second state beside the
//             generator's: what saves and restores that (activation checkpointing, add_random_state() of
//             a checkpoint) repeats the forks, too. Forks may be nested. Megatron's tracker of named
//             states serves the same purpose.
// Group of 1  draws the number and goes on with it all the same, so that one rank and several have equal
//             numbers behind the fork.
// Devices     the CPU's default generator, or the one of the device that is named.
// Threads     As all users of a default generator: one at a time.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/comm/process_group.h"

namespace lockstep::tensor_parallel {

// torch::manual_seed(seed), the default generators of all devices, on every rank of the group (collective).
// Call it before the model is made; data-parallel copies may have the same seed or others. Throws
// InvalidArgument on all ranks if their seeds differ: their pieces would be those of different weights.
void model_parallel_manual_seed(std::uint64_t seed, const ProcessGroup& group);

class ForkedRandom {
 public:
  explicit ForkedRandom(const ProcessGroup& group, c10::Device device = at::kCPU);
  ~ForkedRandom();
  ForkedRandom(const ForkedRandom&) = delete;
  ForkedRandom& operator=(const ForkedRandom&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace lockstep::tensor_parallel
