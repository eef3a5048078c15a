// The state of the random numbers, so that a run that resumes draws what the run that stopped would have
// drawn.
//
//   const at::Tensor state = dist::get_rng_state();
//   const at::Tensor first = torch::rand({3});
//   dist::set_rng_state(state);
//   const at::Tensor again = torch::rand({3});        // the same numbers
//
// The names are torch's: get_rng_state is torch.get_rng_state, get_rng_state_all is
// torch.cuda.get_rng_state_all. The bytes are Python's, too: a state that either side saved sets the other.
//
// Covers      the default generators: initial values of layers, torch::rand, dropout, random_split.
//             Generators that a program made itself keep their own state (at::Generator::get_state()). The
//             samplers and transforms of lockstep draw from their seed and the epoch, not from these
//             generators.
// Ranks       each rank has its own state, and seeds that differ (set_seed) make it differ. Nothing here
//             communicates.
// Threads     a default generator belongs to all threads; the functions take its lock.
// Fails       InvalidArgument, before anything changes: a tensor that is no state, states of another number
//             of devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

// Of the default CPU generator: 5,056 bytes, as a uint8 tensor of its own.
at::Tensor get_rng_state();
void set_rng_state(const at::Tensor& state);

// Of the default generator of every CUDA device, in order; none on a machine without CUDA. Starts CUDA if no
// tensor has.
std::vector<at::Tensor> get_rng_state_all();
void set_rng_state_all(const std::vector<at::Tensor>& states);

}  // namespace lockstep
