// The state of the random numbers. With it, a resumed run draws the numbers that the stopped run would have
// drawn.
//
//   const at::Tensor state = dist::get_rng_state();
//   const at::Tensor first = torch::rand({3});
//   dist::set_rng_state(state);
//   const at::Tensor again = torch::rand({3});        // the same numbers
//
// The names are torch's: get_rng_state is torch.get_rng_state, and get_rng_state_all is
// torch.cuda.get_rng_state_all. The bytes are Python's, too, so each side can set a state that the other has
// saved.
//
// Covers      the default generators: initial values of layers, torch::rand, dropout, random_split. A
//             generator that the program made has a state of its own (at::Generator::get_state()). The
//             samplers and transforms of lockstep draw from their seed and the epoch, not from these
//             generators.
// Ranks       Each rank has its own state, and different seeds (set_seed) make the states differ. Nothing
//             here communicates.
// Threads     All threads share a default generator; the functions take its lock.
// Fails       InvalidArgument, before anything changes: a tensor that is not a state, or states for another
//             number of devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep {

// The state of the default CPU generator: 5,056 bytes, as a new uint8 tensor.
at::Tensor get_rng_state();
void set_rng_state(const at::Tensor& state);

// The state of the default generator of every CUDA device, in order; empty on a machine without CUDA. Starts
// CUDA if no tensor has.
std::vector<at::Tensor> get_rng_state_all();
void set_rng_state_all(const std::vector<at::Tensor>& states);

}  // namespace lockstep
